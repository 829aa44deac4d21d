// An API with Connect. LATCHKEY_CREDENTIAL is a key with the scope keys.verify.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { openVerifier } from "@latchkey/client/verifier";
import { apiKey, latchkey } from "@latchkey/client/verifier/connect";
import { DocumentsService } from "./gen/documents_pb.js";

const { LATCHKEY_ADDRESS: address = "127.0.0.1:50051", LATCHKEY_CREDENTIAL: key = "", PORT = "3000" } = process.env;
const verifier = await openVerifier({ address: `http://${address}`, key });

const permissions = ({ name }: { name: string }) => (name === "Ping" ? false : "documents.read");
const handler = connectNodeAdapter({
  interceptors: [latchkey({ verifier, permissions })],
  routes: (router) =>
    router.service(DocumentsService, {
      readDocument: (_request, { values }) => ({ readBy: values.get(apiKey)?.keyId ?? "" }),
      ping: () => ({}),
    }),
});

const server = createServer(handler).listen(Number(PORT), "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`listening on http://127.0.0.1:${port}\n`);
});
process.once("SIGTERM", () => server.close(() => verifier.close()));
