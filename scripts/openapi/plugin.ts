// The generator of gen/openapi.json. Written by hand, because no package makes OpenAPI from protos as this gateway speaks
// them; a plugin of `buf generate`, because the comments of proto files are known only while they are compiled.
import type { DescService } from "@bufbuild/protobuf";
import { createEcmaScriptPlugin, runNodeJs } from "@bufbuild/protoplugin";
import { describeApi } from "./document.js";

runNodeJs(
  createEcmaScriptPlugin({
    name: "latchkey-openapi",
    version: "v1",
    generateTs({ files, generateFile }) {
      // protoplugin brings a protobuf of its own, a little older: the same descriptors, but types that differ.
      const services: unknown[] = files.flatMap(({ services }) => services);
      const document = describeApi(services as DescService[]);
      generateFile("openapi.json").print(JSON.stringify(document, null, 2));
    },
  }),
);
