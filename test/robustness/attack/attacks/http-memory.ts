import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { connectSocket, jsonHeaders, openSlowReader, postText, requestText } from "../../../support/clients/sockets.js";
import { type Attack, type Outcome, outcomeOf } from "../attack.js";
import { type Bystander, describe, startBystander, wasServed } from "../bystander.js";
import { fillWithLargeKeys } from "../heavy-keys.js";
import type { AttackContext } from "../site.js";
import { maxAddedMb, type Target } from "../target.js";

/** Measures memory and another tenant's calls while an attack runs. */
export async function measureAttack(
  context: AttackContext,
  target: Target,
  attack: () => Promise<string>,
  /** The share of the other tenant's calls that may fail. Load shedding is correct; a crash is not. */
  maxFailedShare = 0.5,
): Promise<Outcome> {
  const bystander: Bystander = await startBystander(context, target);
  const before = target.residentMb();
  let peak = before;
  const sampling = setInterval(() => {
    peak = Math.max(peak, target.residentMb());
  }, 50);
  const sent = await attack();
  clearInterval(sampling);
  if (!target.isAlive())
    return { withstood: false, observed: `${sent}: the process crashed at ${peak.toFixed(0)} MiB` };
  const measurements = await bystander.finish();
  const added = peak - before;
  return outcomeOf(
    {
      "memory bounded": added <= maxAddedMb,
      "other tenants served": wasServed(measurements, maxFailedShare * measurements.calls),
    },
    `${sent}: ${added.toFixed(0)} MiB added; ${describe(measurements)}`,
  );
}

/** Reads a few bytes every second, so that the connections always make progress. */
async function keepReading(sockets: readonly Socket[], seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    await sleep(1_000);
    for (const socket of sockets) socket.read(100);
  }
}

export const pipelinedPages: Attack = {
  name: "pipelined-pages",
  title: "a client without a credential pipelines requests for pages and does not read the responses",
  async run(context) {
    const target = await context.start();
    return measureAttack(context, target, async () => {
      const connections = 40;
      const requests = 1_000;
      const request = requestText("GET", "/api-reference/errors-v2/service", {});
      const sockets = await Promise.all(Array.from({ length: connections }, () => openSlowReader(target.httpUrl)));
      context.addCleanup(() => sockets.forEach((socket) => void socket.destroy()));
      for (const socket of sockets) socket.write(request.repeat(requests));
      await keepReading(sockets, 12);
      return `${connections} connections with ${requests} requests each`;
    });
  },
};

export const unreadPages: Attack = {
  name: "unread-lists",
  title: "a tenant requests large lists over HTTP and does not read them",
  async run(context) {
    const target = await context.start();
    const tenant = await target.createTenant();
    await fillWithLargeKeys(target, tenant);
    return measureAttack(context, target, async () => {
      const connections = 24;
      const request = postText("/v2/keys.listKeys", tenant.key, "{}");
      const sockets = await Promise.all(Array.from({ length: connections }, () => openSlowReader(target.httpUrl)));
      context.addCleanup(() => sockets.forEach((socket) => void socket.destroy()));
      for (const socket of sockets) socket.write(request.repeat(50));
      await keepReading(sockets, 12);
      return `${connections} connections, 50 lists of 3 MB each`;
    });
  },
};

export const unreadLists300: Attack = {
  name: "unread-lists-unpipelined",
  title: "a tenant requests a large list on many connections and does not read it",
  async run(context) {
    const target = await context.start();
    const tenant = await target.createTenant();
    await fillWithLargeKeys(target, tenant);
    return measureAttack(context, target, async () => {
      const connections = 300;
      const request = postText("/v2/keys.listKeys", tenant.key, "{}");
      const sockets = await Promise.all(Array.from({ length: connections }, () => openSlowReader(target.httpUrl)));
      context.addCleanup(() => sockets.forEach((socket) => void socket.destroy()));
      for (const socket of sockets) socket.write(request);
      await keepReading(sockets, 12);
      return `${connections} connections, a list of 3 MB each`;
    });
  },
};

export const oneByteChunks: Attack = {
  name: "one-byte-chunks",
  title: "a request body in one-byte chunks takes many times its size in memory",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    return measureAttack(context, target, async () => {
      const connections = 20;
      const bytes = 120_000;
      const sockets = await Promise.all(Array.from({ length: connections }, () => connectSocket(target.httpUrl)));
      context.addCleanup(() => sockets.forEach((socket) => void socket.destroy()));
      const headers = { ...jsonHeaders(key), "transfer-encoding": "chunked" };
      for (const socket of sockets) socket.resume().write(requestText("POST", "/v2/keys.verifyKey", headers));
      for (const socket of sockets) socket.write("1\r\n \r\n".repeat(bytes));
      await sleep(6_000);
      return `${connections} unfinished bodies of ${bytes} chunks`;
    });
  },
};

export const budgetLeak: Attack = {
  name: "budget-leak",
  title: "aborted pipelined requests leak the memory budget",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const other = await target.createTenant();
    const large = JSON.stringify({ key: "x", pad: " ".repeat(100_000) });
    for (let round = 0; round < 10; round++) {
      const sockets = await Promise.all(Array.from({ length: 70 }, () => connectSocket(target.httpUrl)));
      const slow = postText("/v2/keys.deleteKey", key, JSON.stringify({ keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha" }));
      for (const socket of sockets) socket.resume().write(slow + postText("/v2/keys.verifyKey", key, large));
      await sleep(30);
      for (const socket of sockets) socket.resetAndDestroy();
    }
    await sleep(3_000);
    const left = await target.metric("memory_reserved_bytes");
    const responses = await Promise.all(
      Array.from({ length: 20 }, () => target.call("keys.verifyKey", other.key, { key: " ".repeat(60_000) })),
    );
    const refused = responses.filter(({ status }) => status === 503).length;
    return outcomeOf(
      { "budget released": left < 1_000_000, "large requests served": refused === 0 },
      `${left} bytes still reserved; ${refused} of 20 large requests refused with 503`,
    );
  },
};
