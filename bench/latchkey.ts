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
  /** Calls its HTTP protocol; anything but success is thrown. Returns the body of the answer. */
  answer(path: string, credential: string, body: unknown): Promise<string>;
}

/** A workspace with those who call and what they ask about. */
export interface Scene {
  readonly workspaceId: string;
  /** The workspace's first key, which may do everything. */
  readonly first: string;
  /** The credential of a caller who may do no more than the benchmark needs. */
  readonly caller: string;
  /** Keys to be verified, each with an owner, permissions and meta. */
  readonly keys: readonly { readonly keyId: string; readonly secret: string; readonly externalId: string }[];
}

const operatorKey = "operator-credential-of-the-benchmark";

/**
 * Starts the service by its own command, with the settings that it has by itself: it logs every call, on a stderr that
 * is a file. There is no Redis, the default beside a database that is named; under the lease a key that is in use would
 * not be looked up in it anyway.
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
    async answer(path, credential, body) {
      for (let triesLeft = 20; ; triesLeft--) {
        const response = await fetch(`http://127.0.0.1:${httpPort}${path}`, {
          method: "POST",
          headers: { Authorization: `Bearer ${credential}`, "Content-Type": "application/json" },
          body: JSON.stringify(body),
        });
        const text = await response.text();
        if (response.ok) return text;
        // On a machine that is too busy the lease may be lost for a moment. Before a load that is no reason to fail.
        if (response.status !== 503 || triesLeft === 0) throw new Error(`${path}: ${text}`);
        await setTimeout(500);
      }
    },
  };
}

/** Makes a workspace with so many keys, through the service's own API. */
export async function createScene({ answer }: Latchkey, keyCount = 100): Promise<Scene> {
  const call = async (path: string, credential: string, body: unknown) =>
    JSON.parse(await answer(path, credential, body)).data;
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
      });
      return { keyId, secret: key, externalId };
    }),
  );
  return { workspaceId, first, caller, keys };
}
