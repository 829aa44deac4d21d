import { once } from "node:events";
import { Agent, get, type IncomingMessage } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { openSql } from "../../commands/open-sql.js";
import { createAuthority, writeFiles } from "../support/certificate-authority.js";
import { createDatabase } from "../support/harness.js";
import { callerKinds, type Target } from "./callers.js";
import { type Load, startLoad, underLoad } from "./load.js";
import { until } from "./processes.js";
import { firstRefusal, pollReadiness, watchHealth } from "./readiness.js";
import { ending, makePlace, start, stop } from "./service.js";

const operatorKey = "operator-credential-of-the-start-tests";

/** How often each way of running is stopped: which call is under way where is another matter each time. */
const rounds = 3;

describe("SIGTERM under full load cuts off no call, loses no write, and is not held up by idle clients", () => {
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

describe("with SHUTDOWN_DELAY_MS, SIGTERM under load is told before anybody is refused", () => {
  test.for([
    ["one process", {}],
    ["two workers", { WORKERS: "2" }],
  ] as const)("by %s", { timeout: 60_000 }, async ([, set]) => {
    const { target, service, key } = await startService({ ...set, SHUTDOWN_DELAY_MS: "3000" });
    const load = startLoad(target, key);
    onTestFinished(load.close);
    const order: string[] = [];
    const tellWhen = (what: string, seen: Promise<unknown>) => seen.then(() => order.push(what));
    const probed = pollReadiness(target, false, (sight) => order.push(sight));
    const watched = watchHealth(target);
    void tellWhen("the watcher knows", watched);
    const refused = [
      tellWhen("HTTP refused", firstRefusal(Number(new URL(target.httpUrl).port))),
      tellWhen("gRPC refused", firstRefusal(Number(target.grpcAddress.split(":")[1]))),
    ];
    await underLoad(load, 25);

    load.toldToStop();
    expect(await stop(service)).toMatchObject({ code: 0 });
    await Promise.all([...refused, probed, watched, load.over]);
    expect(await watched).toEqual(["ready", "not ready"]);
    const first = (what: string) => order.indexOf(what);
    expect(order).toContain("not ready");
    for (const refusal of ["HTTP refused", "gRPC refused"]) {
      expect(first("not ready"), `${order}`).toBeLessThan(first(refusal));
      expect(first("the watcher knows"), `${order}`).toBeLessThan(first(refusal));
    }
    expectNothingLost(load);
  });
});

test("with two workers, none sends a client away while the other still accepts connections", {
  timeout: 60_000,
}, async () => {
  const { target, service } = await startService({ WORKERS: "2" });
  const agents = Array.from({ length: 4 }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  onTestFinished(() => {
    for (const agent of agents) agent.destroy();
  });
  for (const agent of agents) expect(await askOn(agent, target)).toBe("keep-alive");
  const [frozen] = service.family().filter(({ command }) => command.includes("worker.js"));
  process.kill(frozen?.pid ?? 0, "SIGSTOP");
  const answers = await Promise.all(agents.map((agent) => askOn(agent, target)));
  const served = agents.filter((_, index) => answers[index] === "keep-alive");
  expect(served, "of four connections, those to the worker that is not frozen").toHaveLength(2);

  service.signal("SIGTERM");
  await until(
    "it says that it is not ready",
    async () => (await statusOn(served[0] as Agent, target)) === 503 || undefined,
  );
  for (let turn = 0; turn < 10; turn++) {
    for (const agent of served) expect(await askOn(agent, target)).toBe("keep-alive");
    await sleep(20);
  }
  process.kill(frozen?.pid ?? 0, "SIGCONT");
  await until("it sends clients away", async () => (await askOn(served[1] as Agent, target)) === "close" || undefined);
  expect(await ending(service)).toMatchObject({ code: 0 });
});

/** Stops a service, several times, while clients of every kind call it. */
async function stopUnderLoad(set: Record<string, string>, ca?: string): Promise<void> {
  for (let round = 1; round <= rounds; round++) {
    const { target, service, key, databaseUrl } = await startService(set, ca);
    await openIdle(target);
    const load = startLoad(target, key);
    onTestFinished(load.close);
    const polled = pollReadiness(target, true);
    const watched = watchHealth(target);
    await underLoad(load, 25);

    load.toldToStop();
    const { code, ms } = await stop(service);
    await load.over;
    expect(code).toBe(0);
    expect(ms, "idle clients do not hold it up for the 10 s that running calls get").toBeLessThan(9_000);
    expectNothingLost(load);
    expect(await polled, "on a connection that is kept").toEqual(["ready", "not ready", "refused"]);
    expect(await watched).toEqual(["ready", "not ready"]);
    expect(await notStored(databaseUrl, load.acknowledged), "acknowledged, and not in the database").toEqual([]);
  }
}

async function startService(set: Record<string, string>, ca?: string) {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  const backends = { DATABASE_URL: database.url, REDIS_URL: inject("redisUrl"), OPERATOR_KEY: operatorKey };
  const service = await start(makePlace(), { set: { ...backends, LOG_LEVEL: "warn", ...set } });
  const target: Target = { ...service, ...(ca && { ca }) };
  const operator = callerKinds["HTTP, kept alive"](target);
  const made = await operator.call("createWorkspace", operatorKey, { name: "Acme" });
  operator.close();
  const key = made.kind === "answered" ? String(made.data["key"]) : expect.fail(JSON.stringify(made));
  return { service, target, key, databaseUrl: database.url };
}

/** Clients of each kind that have asked once, and connections on which nothing is ever asked. */
async function openIdle(target: Target): Promise<void> {
  for (const open of Object.values(callerKinds)) {
    const caller = open(target);
    onTestFinished(caller.close);
    expect(await caller.call("listWorkspaces", operatorKey, {})).toMatchObject({ kind: "answered" });
  }
  const session = connectHttp2(`${target.ca ? "https" : "http"}://${target.grpcAddress}`, { ca: target.ca ?? "" });
  onTestFinished(() => session.destroy());
  await once(session, "connect");
  for (const port of [new URL(target.httpUrl).port, target.grpcAddress.split(":")[1]]) {
    const socket = connect(Number(port), "127.0.0.1")
      .on("error", () => {})
      .resume(); // it hears when it is to go
    onTestFinished(() => void socket.destroy());
    await once(socket, "connect");
  }
}

/** What an answer says of its connection; undefined if there is none soon. */
async function askOn(agent: Agent, target: Target): Promise<string | undefined> {
  return (await getOn(agent, target, "/livez"))?.headers.connection;
}

async function statusOn(agent: Agent, target: Target): Promise<number | undefined> {
  return (await getOn(agent, target, "/readyz"))?.statusCode;
}

function getOn(agent: Agent, { httpUrl }: Target, path: string): Promise<IncomingMessage | undefined> {
  return new Promise((resolve) => {
    const asked = get(`${httpUrl}${path}`, { agent, timeout: 2_000 });
    asked.once("timeout", () => asked.destroy()).once("error", () => resolve(undefined));
    asked.once("response", (response) => response.resume().once("end", () => resolve(response)));
  });
}

/** Every call of every client is accounted for: it was answered, or never taken. */
function expectNothingLost({ tallies }: Load): void {
  for (const [kind, { sent, answered, unsent, returned, lost }] of tallies) {
    process.stdout.write(`${kind}: ${JSON.stringify({ sent, answered, unsent, returned })}\n`);
    expect(lost, kind).toEqual([]);
    expect(answered + unsent + returned, kind).toBe(sent);
  }
  const late = [...tallies.values()].reduce((sum, { answeredLate }) => sum + answeredLate, 0);
  expect(late, "there was load when it was told to stop").toBeGreaterThan(0);
}

async function notStored(databaseUrl: string, externalIds: ReadonlySet<string>): Promise<string[]> {
  const sql = openSql(databaseUrl, { max: 1 });
  onTestFinished(() => sql.end({ timeout: 1 }));
  const rows = await sql<{ external_id: string }[]>`
    select external_id from identities join audit_events on resource_id = identity_id and type = 'identity.create'`;
  const stored = new Set(rows.map(({ external_id }) => external_id));
  return [...externalIds].filter((externalId) => !stored.has(externalId));
}
