// Writes the JavaScript of the package; `tsc -p client` writes its types.
import { readdirSync } from "node:fs";
import { defineConfig } from "rolldown";

const messages = ["../gen/latchkey/v1", "../gen/google/rpc"].flatMap((folder) =>
  readdirSync(folder).map((file) => `${folder}/${file}`),
);

/** The clients: module by module, and without protobuf and Connect, which users of the protobuf client install. */
const clients = {
  input: ["../src/client/client.ts", "../src/client/protobuf.ts", ...messages],
  external: /^[^./]/,
  output: { dir: "dist", preserveModules: true, preserveModulesRoot: ".." },
};

const adapters = ["connect", "express", "fastify", "grpc", "hono"].map((name) => `adapters/${name}`);

/** Only the adapter for Connect uses the Connect of the user. */
const isOfUser = (id, importer = "") =>
  id === "@grpc/grpc-js" || (id === "@connectrpc/connect" && importer.endsWith("/adapters/connect.ts"));

/** The clients and the verifier throw the same LatchkeyError: with two copies of it, isLatchkeyError would miss one. */
const isShared = (id, importer = "") =>
  id.endsWith("/client/error.js") || (id === "./error.js" && importer.includes("/src/client/"));

/**
 * The verifier and its adapters: bundled with the parts of protobuf, Connect and lru-cache that they use. As dependencies,
 * these packages would take 6.6 MB.
 */
const verifier = {
  input: Object.fromEntries(["verifier", ...adapters].map((name) => [name, `../src/verifier/${name}.ts`])),
  platform: "node",
  external: (id, importer) => isOfUser(id, importer) || isShared(id, importer),
  output: { dir: "dist/src/verifier", chunkFileNames: "bundled/[name].js" },
};

export default defineConfig([clients, verifier]);
