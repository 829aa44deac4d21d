// better-auth's verifyApiKey behind Fastify. The function is server-only, so a route of this file calls it, and no
// caller is authenticated. The settings are the fastest that still verify keys properly: rate limits are off, usage of
// keys is written in the background, and the pool is as large as Latchkey's.
import { apiKey } from "@better-auth/api-key";
import { betterAuth } from "better-auth";
import { getMigrations } from "better-auth/db/migration";
import { fastify } from "fastify";
import pg from "pg";

const options = {
  database: new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 }),
  baseURL: "http://127.0.0.1",
  secret: "a-secret-for-the-benchmark-and-nothing-else",
  telemetry: { enabled: false },
  logger: { disabled: true },
  rateLimit: { enabled: false },
  plugins: [apiKey({ rateLimit: { enabled: false }, enableMetadata: true, deferUpdates: true })],
  advanced: { backgroundTasks: { handler: (task) => void task } },
};
await (await getMigrations(options)).runMigrations();
const auth = betterAuth(options);
const { internalAdapter } = await auth.$context;
const user = await internalAdapter.createUser({ email: "bench@example.com", name: "Benchmark", emailVerified: true });

const server = fastify();
server.post("/create", async () =>
  auth.api.createApiKey({
    body: {
      userId: user.id,
      name: "build server",
      permissions: { documents: ["read", "write"] },
      metadata: { team: 7 },
    },
  }),
);
server.post("/verify", async ({ body }) => auth.api.verifyApiKey({ body }));
const address = await server.listen({ host: "127.0.0.1", port: 0 });
process.stdout.write(`ready on ${address}\n`);
