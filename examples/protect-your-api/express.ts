// An API with Express. LATCHKEY_CREDENTIAL is a key with the scope keys.verify.
import type { AddressInfo } from "node:net";
import { openVerifier } from "@latchkey/client/verifier";
import { latchkey } from "@latchkey/client/verifier/express";
import express from "express";

const { LATCHKEY_ADDRESS: address = "127.0.0.1:50051", LATCHKEY_CREDENTIAL: key = "", PORT = "3000" } = process.env;
const verifier = await openVerifier({ address: `http://${address}`, key });

const app = express();
const requireKey = latchkey({ verifier });
app.get("/documents", requireKey("documents.read"), (req, res) => res.json({ readBy: req.apiKey?.keyId }));
app.get("/health", (_req, res) => res.json({ status: "up" }));

const server = app.listen(Number(PORT), "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`listening on http://127.0.0.1:${port}\n`);
});
process.once("SIGTERM", () => server.close(() => verifier.close()));
