import { once } from "node:events";
import { Agent, get, type IncomingMessage } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createAuthority, writeFiles } from "../support/certificate-authority.js";
import { type Target, uncheckedClientKinds } from "../support/clients/unchecked.js";
import { createDatabase } from "../support/harness.js";
import { openClient } from "./clients.js";
import { type Load, startLoad, waitForResponses } from "./load.js";
import { until } from "./processes.js";
import { firstRefusal, pollReadiness, watchHealth } from "./readiness.js";
import { makeSandbox, start, stop, waitForExit } from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

/** The number of shutdowns per configuration. Different calls are in flight each time. */
const rounds = 3;

describe("graceful shutdown: SIGTERM under full load drops no call, loses no write, and is not delayed by idle clients", () => {
  test.for([
    ["one process", {}],
    ["two workers", { WORKERS: "2" }],
  ] as const)("of %s", { timeout: 180_000 }, ([, set]) => stopUnderLoad(set));

  test.for([
    ["one process", {}],
    ["two workers", { WORKERS: "2" }],
  ] as const)("of %s over TLS", { timeout: 180_000 }, async ([, set]) => {
    const authority = await createAuthority();
    const files = writeFiles(await authority.issue(), authority.cert);
    onTestFinished(files.remove);
    const certificates = { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile };
    await stopUnderLoad({ ...set, ...certificates }, authority.cert);
  });
});

describe("with SHUTDOWN_DELAY_MS, the service reports not ready after SIGTERM before it refuses connections", () => {
  test.for([
    ["one process", {}],
    ["two workers", { WORKERS: "2" }],
  ] as const)("by %s", { timeout: 60_000 }, async ([, set]) => {
    const { target, service, key } = await startService({ ...set, SHUTDOWN_DELAY_MS: "3000" });
    const load = startLoad(target, key);
    onTestFinished(load.close);
    const order: string[] = [];
    const recordWhen = (what: string, seen: Promise<unknown>) => seen.then(() => order.push(what));
    const probed = pollReadiness(target, false, (observation) => order.push(observation));
    const watched = watchHealth(target);
    void recordWhen("the health watcher ended", watched);
    const refused = [
      recordWhen("HTTP refused", firstRefusal(Number(new URL(target.httpUrl).port))),
      recordWhen("gRPC refused", firstRefusal(Number(target.grpcAddress.split(":")[1]))),
    ];
    await waitForResponses(load, 25);

    load.markShutdown();
    expect(await stop(service)).toMatchObject({ code: 0 });
    await Promise.all([...refused, probed, watched, load.over]);
    expect(await watched).toEqual(["ready", "not ready"]);
    const first = (what: string) => order.indexOf(what);
    expect(order).toContain("not ready");
    for (const refusal of ["HTTP refused", "gRPC refused"]) {
      expect(first("not ready"), `${order}`).toBeLessThan(first(refusal));
      expect(first("the health watcher ended"), `${order}`).toBeLessThan(first(refusal));
    }
    expectNothingLost(load);
  });
});

test("graceful shutdown with two workers: none disconnects a client while the other still accepts connections", {
  timeout: 60_000,
}, async () => {
  const { target, service } = await startService({ WORKERS: "2" });
  const agents = Array.from({ length: 4 }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  onTestFinished(() => {
    for (const agent of agents) agent.destroy();
  });
  for (const agent of agents) expect(await connectionHeaderOn(agent, target)).toBe("keep-alive");
  const [frozen] = service.descendants().filter(({ command }) => command.includes("worker.js"));
  process.kill(frozen?.pid ?? 0, "SIGSTOP");
  const responses = await Promise.all(agents.map((agent) => connectionHeaderOn(agent, target)));
  const served = agents.filter((_, index) => responses[index] === "keep-alive");
  expect(served, "of four connections, those to the worker that is not frozen").toHaveLength(2);

  service.signal("SIGTERM");
  await until(
    "the service reports that it is not ready",
    async () => (await statusOn(served[0] as Agent, target)) === 503 || undefined,
  );
  for (let turn = 0; turn < 10; turn++) {
    for (const agent of served) expect(await connectionHeaderOn(agent, target)).toBe("keep-alive");
    await sleep(20);
  }
  process.kill(frozen?.pid ?? 0, "SIGCONT");
  await until(
    "responses close their connection",
    async () => (await connectionHeaderOn(served[1] as Agent, target)) === "close" || undefined,
  );
  expect(await waitForExit(service)).toMatchObject({ code: 0 });
});

/** Stops a service, several times, under load from every kind of client. */
async function stopUnderLoad(set: Record<string, string>, ca?: string): Promise<void> {
  for (let round = 1; round <= rounds; round++) {
    const { target, service, key, databaseUrl } = await startService(set, ca);
    await openIdle(target);
    const load = startLoad(target, key);
    onTestFinished(load.close);
    const polled = pollReadiness(target, true);
    const watched = watchHealth(target);
    await waitForResponses(load, 25);

    load.markShutdown();
    const { code, ms, stderr } = await stop(service);
    await load.over;
    expect(code).toBe(0);
    expect(ms, `idle clients do not delay it for the 10 s that calls in flight get\n${stderr}`).toBeLessThan(9_000);
    expectNothingLost(load);
    expect(await polled, "on a keep-alive connection").toEqual(["ready", "not ready", "refused"]);
    expect(await watched).toEqual(["ready", "not ready"]);
    expect(await notStored(databaseUrl, load.acknowledged), "acknowledged, and not in the database").toEqual([]);
  }
}

async function startService(set: Record<string, string>, ca?: string) {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  const backends = { DATABASE_URL: database.url, REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey };
  const service = await start(makeSandbox(), { set: { ...backends, LOG_LEVEL: "warn", ...set } });
  const target: Target = { ...service, ...(ca && { ca }) };
  const operator = openClient("HTTP", target);
  const created = await operator.call("createWorkspace", operatorKey, { name: "Acme" });
  operator.close();
  const key = created.kind === "success" ? String(created.data["key"]) : expect.fail(JSON.stringify(created));
  return { service, target, key, databaseUrl: database.url };
}

/** Opens idle clients of each kind, which have made one call, and connections without any request. */
async function openIdle(target: Target): Promise<void> {
  for (const kind of uncheckedClientKinds) {
    const client = openClient(kind, target);
    onTestFinished(client.close);
    expect(await client.call("listWorkspaces", operatorKey, {})).toMatchObject({ kind: "success" });
  }
  const session = connectHttp2(`${target.ca ? "https" : "http"}://${target.grpcAddress}`, { ca: target.ca ?? "" });
  onTestFinished(() => session.destroy());
  await once(session, "connect");
  for (const port of [new URL(target.httpUrl).port, target.grpcAddress.split(":")[1]]) {
    const socket = connect(Number(port), "127.0.0.1")
      .on("error", () => {})
      .resume(); // detects that the server closes the connection
    onTestFinished(() => void socket.destroy());
    await once(socket, "connect");
  }
}

/** The `Connection` header of a response; undefined if there is none within the timeout. */
async function connectionHeaderOn(agent: Agent, target: Target): Promise<string | undefined> {
  return (await getOn(agent, target, "/livez"))?.headers.connection;
}

async function statusOn(agent: Agent, target: Target): Promise<number | undefined> {
  return (await getOn(agent, target, "/readyz"))?.statusCode;
}

function getOn(agent: Agent, { httpUrl }: Target, path: string): Promise<IncomingMessage | undefined> {
  return new Promise((resolve) => {
    const sent = get(`${httpUrl}${path}`, { agent, timeout: 2_000 });
    sent.once("timeout", () => sent.destroy()).once("error", () => resolve(undefined));
    sent.once("response", (response) => response.resume().once("end", () => resolve(response)));
  });
}

/** Every call of every client was answered, or never processed. */
function expectNothingLost({ tallies }: Load): void {
  for (const [kind, { sent, answered, unsent, unprocessed, lost }] of tallies) {
    process.stdout.write(`${kind}: ${JSON.stringify({ sent, answered, unsent, unprocessed })}\n`);
    expect(lost, kind).toEqual([]);
    expect(answered + unsent + unprocessed, kind).toBe(sent);
  }
  const late = [...tallies.values()].reduce((sum, { answeredLate }) => sum + answeredLate, 0);
  expect(late, "there was load when the shutdown began").toBeGreaterThan(0);
}

async function notStored(databaseUrl: string, externalIds: ReadonlySet<string>): Promise<string[]> {
  const sql = openSql(databaseUrl, { max: 1 });
  onTestFinished(() => sql.end({ timeout: 1 }));
  const rows = await sql<{ external_id: string }[]>`
    select external_id from identities join audit_events on resource_id = identity_id and type = 'identity.create'`;
  const stored = new Set(rows.map(({ external_id }) => external_id));
  return [...externalIds].filter((externalId) => !stored.has(externalId));
}
