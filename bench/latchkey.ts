import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { project } from "../commands/project.js";
import type { Bench } from "./bench.js";
import type { Server } from "./servers.js";

/** A running Latchkey. */
export interface Latchkey {
  readonly server: Server;
  readonly httpPort: number;
  readonly grpcPort: number;
  /** Undefined unless a METRICS_PORT was given. */
  readonly metricsUrl: string | undefined;
  readonly databaseUrl: string;
  /** Calls the HTTP API and returns the response body. Throws unless the call succeeds. */
  call(path: string, credential: string, body: unknown): Promise<string>;
}

/** A workspace with a caller and the keys that it verifies. */
export interface Fixture {
  readonly workspaceId: string;
  /** The workspace's first key, which has all scopes. */
  readonly first: string;
  /** The credential of a caller with only the scopes that the benchmark needs. */
  readonly caller: string;
  /** Keys to verify, each with an identity, permissions and meta. */
  readonly keys: readonly { readonly keyId: string; readonly secret: string; readonly externalId: string }[];
}

const operatorKey = "operator-credential-of-the-benchmark";

/**
 * Starts the service by its own command with its default settings. It logs every call, and its stderr is a file. There
 * is no Redis, which is the default when DATABASE_URL is set. Under the lease, keys in use would not be looked up in
 * Redis anyway.
 */
export async function startLatchkey(
  bench: Bench,
  { name = "Latchkey", env = {} }: { name?: string; env?: NodeJS.ProcessEnv } = {},
): Promise<Latchkey> {
  const databaseUrl = env["DATABASE_URL"] ?? (await bench.createDatabase());
  const server = await bench.startServer({
    name,
    program: [join(project, "dist/src/main.js")],
    env: {
      DATABASE_URL: databaseUrl,
      OPERATOR_KEY: operatorKey,
      DATA_DIR: join(bench.folder, "latchkey"),
      HTTP_PORT: "0",
      GRPC_PORT: "0",
      ...env,
    },
    ready: /Ctrl-C stops it\./,
  });
  const port = (label: string) => Number(new RegExp(`^ +${label} +\\S+:(\\d+)$`, "m").exec(server.banner)?.[1]);
  const httpPort = port("HTTP/JSON, Connect");
  return {
    server,
    httpPort,
    grpcPort: port("gRPC"),
    metricsUrl: /^ +Metrics +(\S+)$/m.exec(server.banner)?.[1],
    databaseUrl,
    async call(path, credential, body) {
      for (let attemptsLeft = 20; ; attemptsLeft--) {
        const response = await fetch(`http://127.0.0.1:${httpPort}${path}`, {
          method: "POST",
          headers: { Authorization: `Bearer ${credential}`, "Content-Type": "application/json" },
          body: JSON.stringify(body),
        });
        const text = await response.text();
        if (response.ok) return text;
        // On an overloaded machine the lease may lapse for a moment. Before a load starts, this is no reason to fail.
        if (response.status !== 503 || attemptsLeft === 0) throw new Error(`${path}: ${text}`);
        await setTimeout(500);
      }
    },
  };
}

/**
 * Creates a workspace with this many keys, through the service's own API.
 *
 * @param settings further settings of each key
 */
export async function createFixture(latchkey: Latchkey, keyCount = 100, settings: object = {}): Promise<Fixture> {
  const call = async (path: string, credential: string, body: unknown) =>
    JSON.parse(await latchkey.call(path, credential, body)).data;
  const { workspaceId, key: first } = await call("/v2/workspaces.createWorkspace", operatorKey, { name: "Benchmark" });
  const scopes = ["keys.verify", "keys.read", "identities.read"];
  const { key: caller } = await call("/v2/keys.createKey", first, { name: "caller", scopes });
  const keys = await Promise.all(
    Array.from({ length: keyCount }, async (_, index) => {
      const externalId = `user_${1_000 + index}`;
      await call("/v2/identities.createIdentity", first, { externalId, meta: { plan: "pro" } });
      const { keyId, key } = await call("/v2/keys.createKey", first, {
        name: "build server",
        externalId,
        permissions: ["documents.read", "documents.write"],
        meta: { team: 7 },
        ...settings,
      });
      return { keyId, secret: key, externalId };
    }),
  );
  return { workspaceId, first, caller, keys };
}
