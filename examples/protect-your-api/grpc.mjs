// An API with grpc-js. LATCHKEY_CREDENTIAL is a key with the scope keys.verify.
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { openVerifier } from "@latchkey/client/verifier";
import { apiKeyOf, latchkey } from "@latchkey/client/verifier/grpc";

const { LATCHKEY_ADDRESS: address = "127.0.0.1:50051", LATCHKEY_CREDENTIAL: key = "", PORT = "3000" } = process.env;
const verifier = await openVerifier({ address: `http://${address}`, key });

const permissions = ({ path }) => (path === "/acme.v1.DocumentsService/Ping" ? false : "documents.read");
const server = new grpc.Server({ interceptors: [latchkey({ verifier, permissions })] });
const definition = loadSync(fileURLToPath(new URL("documents.proto", import.meta.url)));
server.addService(definition["acme.v1.DocumentsService"], {
  ReadDocument: (call, respond) => respond(null, { readBy: apiKeyOf(call).keyId }),
  Ping: (_call, respond) => respond(null, {}),
});

server.bindAsync(`127.0.0.1:${PORT}`, grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  process.stdout.write(`listening on http://127.0.0.1:${port}\n`);
});
process.once("SIGTERM", () => server.tryShutdown(() => verifier.close()));
