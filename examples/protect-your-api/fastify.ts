// An API with Fastify. LATCHKEY_CREDENTIAL is a key with the scope keys.verify.

import { openVerifier } from "@latchkey/client/verifier";
import { latchkey } from "@latchkey/client/verifier/fastify";
import Fastify from "fastify";

const { LATCHKEY_ADDRESS: address = "127.0.0.1:50051", LATCHKEY_CREDENTIAL: key = "", PORT = "3000" } = process.env;
const verifier = await openVerifier({ address: `http://${address}`, key });

const app = Fastify();
await app.register(latchkey, { verifier });
app.get("/documents", { config: { permissions: "documents.read" } }, ({ apiKey }) => ({ readBy: apiKey.keyId }));
app.get("/health", { config: { permissions: false } }, () => ({ status: "up" }));
app.addHook("onClose", () => verifier.close());

process.stdout.write(`listening on ${await app.listen({ port: Number(PORT), host: "127.0.0.1" })}\n`);
process.once("SIGTERM", () => app.close());
