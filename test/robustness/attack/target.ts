import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type postgres from "postgres";
import { openSql } from "../../../commands/open-sql.js";
import { launchNode, readBanner } from "../../../commands/processes.js";
import { callJson, type JsonResponse } from "../../support/clients/json-call.js";
import { readSamples, total } from "../../support/metric-samples.js";

/** A service under attack, in a separate process with a small heap. */
export interface Target {
  readonly httpUrl: string;
  readonly httpPort: number;
  readonly grpcPort: number;
  readonly grpcAddress: string;
  readonly databaseUrl: string;
  readonly pid: number;
  isAlive(): boolean;
  /** The resident memory of the process, in MiB. */
  residentMb(): number;
  /** The sum of a metric over all of its labels. */
  metric(name: string): Promise<number>;
  /** Its whole log. */
  log(): string;
  /** Calls an operation over HTTP/JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: the responses of some twenty operations
  call(operation: string, credential: string, body?: unknown): Promise<JsonResponse<any>>;
  /** Calls an operation with the operator credential. Throws unless it succeeds. */
  operate(operation: string, body: unknown): Promise<Record<string, string>>;
  createTenant(): Promise<Tenant>;
  sql(): postgres.Sql;
  stop(): Promise<void>;
}

/** A workspace with a key that has all scopes. */
export interface Tenant {
  readonly workspaceId: string;
  readonly keyId: string;
  readonly key: string;
}

export interface TargetOptions {
  readonly env?: NodeJS.ProcessEnv;
}

/** The heap of the attacked process, as in a small container. */
const heapMb = 512;

/** How much an attack may increase the resident memory of the process: half of its heap. */
export const maxAddedMb = heapMb / 2;

export const operatorKey = "operator-credential-of-the-attacks";

export async function startTarget(
  program: string,
  databaseUrl: string,
  redisUrl: string | undefined,
  { env = {} }: TargetOptions,
): Promise<Target> {
  const launched = launchNode([`--max-old-space-size=${heapMb}`, program], {
    PATH: process.env["PATH"],
    DATABASE_URL: databaseUrl,
    REDIS_URL: redisUrl,
    OPERATOR_KEY: operatorKey,
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    METRICS_PORT: "0",
    ...env,
  });
  const { child } = launched;
  let log = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    log += text;
  });
  let isAlive = true;
  void launched.ended.then(() => {
    isAlive = false;
  });
  const banner = await readBanner(launched, () => log);
  const find = (label: string) => new RegExp(`^ +${label} +(\\S+)$`, "m").exec(banner)?.[1] ?? "";
  const httpUrl = find("HTTP/JSON, Connect");
  const grpcAddress = find("gRPC");
  const metricsUrl = find("Metrics");
  const connections: postgres.Sql[] = [];

  const call = (operation: string, credential: string, body?: unknown) =>
    // biome-ignore lint/suspicious/noExplicitAny: the responses of some twenty operations
    callJson<any>(httpUrl, `/v2/${operation}`, credential, body);

  async function operate(operation: string, body: unknown): Promise<Record<string, string>> {
    const { status, error, data } = await call(operation, operatorKey, body);
    if (status !== 200) throw new Error(`${operation}: ${status} ${error}`);
    return data;
  }

  return {
    httpUrl,
    httpPort: Number(new URL(httpUrl).port),
    grpcPort: Number(grpcAddress.split(":").at(-1)),
    grpcAddress,
    databaseUrl,
    pid: child.pid ?? 0,
    isAlive: () => isAlive,
    residentMb: () => residentMb(child.pid ?? 0),
    metric: async (name) => total(await readSamples({ metricsUrl }), `latchkey_${name}`),
    log: () => log,
    call,
    operate,
    async createTenant() {
      const {
        workspaceId = "",
        keyId = "",
        key = "",
      } = await operate("workspaces.createWorkspace", { name: "tenant" });
      return { workspaceId, keyId, key };
    },
    sql() {
      const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });
      connections.push(sql);
      return sql;
    },
    async stop() {
      await Promise.all(connections.map((sql) => sql.end({ timeout: 1 })));
      await launched.kill();
    },
  };
}

/** 0 for a process that has ended. */
function residentMb(pid: number): number {
  const file = `/proc/${pid}/status`;
  if (existsSync(file)) return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(file, "utf8"))?.[1] ?? 0) / 1024;
  try {
    return Number(execFileSync("ps", ["-o", "rss=", "-p", `${pid}`], { encoding: "utf8" })) / 1024;
  } catch {
    return 0;
  }
}
