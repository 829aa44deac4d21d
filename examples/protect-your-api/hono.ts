// An API with Hono. LATCHKEY_CREDENTIAL is a key with the scope keys.verify.
import { serve } from "@hono/node-server";
import { openVerifier } from "@latchkey/client/verifier";
import { latchkey } from "@latchkey/client/verifier/hono";
import { Hono } from "hono";

const { LATCHKEY_ADDRESS: address = "127.0.0.1:50051", LATCHKEY_CREDENTIAL: key = "", PORT = "3000" } = process.env;
const verifier = await openVerifier({ address: `http://${address}`, key });

const app = new Hono();
const requireKey = latchkey({ verifier });
app.get("/documents", requireKey("documents.read"), (c) => c.json({ readBy: c.get("apiKey").keyId }));
app.get("/health", (c) => c.json({ status: "up" }));

const server = serve({ fetch: app.fetch, hostname: "127.0.0.1", port: Number(PORT) }, ({ port }) => {
  process.stdout.write(`listening on http://127.0.0.1:${port}\n`);
});
process.once("SIGTERM", () => server.close(() => verifier.close()));
