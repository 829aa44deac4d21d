import { readFileSync } from "node:fs";
import type { DescService } from "@bufbuild/protobuf";
import { commentOf } from "./comments.js";
import { envelopeHeaders, envelopeParameters, envelopeSchemas } from "./envelope.js";
import { errorExamples, errorTable, sharedResponses } from "./errors.js";
import type { JsonObject } from "./json.js";
import { describeOperation, tagOf } from "./operations.js";
import { probes, probesTag } from "./probes.js";
import { createSchemas } from "./schemas.js";

/** The whole HTTP/JSON interface as an OpenAPI document. */
export function describeApi(allServices: readonly DescService[]): JsonObject {
  const services = keysFirst(allServices);
  const methods = services.flatMap((service) => service.methods);
  const schemas = createSchemas(methods.map(({ output }) => output));
  const items = methods.flatMap((method) => describeOperation(method, schemas));
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  return {
    openapi: "3.1.1",
    info: { title: "Latchkey API", version, summary: "API keys for your services.", description },
    servers: [{ url: "/", description: "The service that serves this document." }],
    tags: [...services.map((service) => ({ name: tagOf(service), description: commentOf(service) })), probesTag],
    paths: { ...Object.fromEntries(items.map(({ path, item }) => [path, item])), ...probes },
    components: {
      securitySchemes: {
        key: {
          type: "http",
          scheme: "bearer",
          description: "A key of the workspace: `Authorization: Bearer <API_KEY>`.",
        },
        operator: { type: "http", scheme: "bearer", description: "The credential of the service's operator." },
      },
      schemas: { ...envelopeSchemas, ...schemas.all() },
      responses: sharedResponses,
      headers: envelopeHeaders,
      parameters: envelopeParameters,
      examples: errorExamples,
    },
  };
}

/** The services in the order of their files, after that of the keys, which readers look for first. */
function keysFirst(services: readonly DescService[]): DescService[] {
  const isOfKeys = ({ name }: DescService) => name === "KeysService";
  return [...services.filter(isOfKeys), ...services.filter((service) => !isOfKeys(service))];
}

const description = `The keys, identities and workspaces of this installation, over HTTP and JSON. The same operations
are served over gRPC and Connect, from the same definitions.

- A success is 200, with \`meta.requestId\` and \`data\`; lists add \`pagination\`. Times are Unix milliseconds. Unset
  optional fields are omitted.
- In an update, an omitted field is unchanged and \`null\` clears a field. Elsewhere \`null\` means omitted. An empty
  body means \`{}\`. Unknown fields and query parameters are refused, and the error names them.
- Text must be well-formed Unicode without U+0000. The maximum size of a body is 128 KiB. \`meta\` is limited to
  32 levels and 16 KiB.

Every error response has the same form. Its \`type\` is the URL of a page about the error.

<details><summary>All errors</summary>

${errorTable}

</details>
`;
