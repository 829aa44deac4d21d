// Generates gen/openapi.json and gen/client.ts. Written by hand, because no package generates OpenAPI for this gateway's
// JSON mapping. It is a plugin of `buf generate`, because proto comments are available only during compilation.
import type { DescService } from "@bufbuild/protobuf";
import { createEcmaScriptPlugin, runNodeJs } from "@bufbuild/protoplugin";
import { describeClient } from "./client-types.js";
import { describeApi } from "./document.js";

runNodeJs(
  createEcmaScriptPlugin({
    name: "latchkey-openapi",
    version: "v1",
    generateTs({ files, generateFile }) {
      // protoplugin has its own, slightly older protobuf: the descriptors are the same, but their types differ.
      // Streams are served over gRPC only.
      const unary: unknown[] = files
        .flatMap(({ services }) => services)
        .filter(({ methods }) => methods.every(({ methodKind }) => methodKind === "unary"));
      const services = unary as DescService[];
      generateFile("openapi.json").print(JSON.stringify(describeApi(services), null, 2));
      generateFile("client.ts").print(describeClient(services.flatMap(({ methods }) => methods)));
    },
  }),
);
