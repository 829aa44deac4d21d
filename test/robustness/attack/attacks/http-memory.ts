import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { type Attack, type Outcome, outcomeOf } from "../attack.js";
import { type Bystander, describe, startBystander, wasServed } from "../bystander.js";
import { fillWithHeavyKeys } from "../heavy-keys.js";
import type { Site } from "../site.js";
import { jsonHeaders, openSlowReader, openSocket, postText, requestText } from "../sockets.js";
import { mostAddedMb, type Target } from "../target.js";

/** Follows memory and another tenant's calls while an attack runs. */
export async function whileWatched(
  site: Site,
  target: Target,
  attack: () => Promise<string>,
  /** Of another tenant's calls: shedding load is right, to end is not. */
  shareOfFailed = 0.5,
): Promise<Outcome> {
  const bystander: Bystander = await startBystander(site, target);
  const before = target.residentMb();
  let peak = before;
  const looking = setInterval(() => {
    peak = Math.max(peak, target.residentMb());
  }, 50);
  const sent = await attack();
  clearInterval(looking);
  if (!target.isAlive()) return { withstood: false, observed: `${sent}: the process ended at ${peak.toFixed(0)} MiB` };
  const experience = await bystander.finish();
  const added = peak - before;
  return outcomeOf(
    {
      "within memory": added <= mostAddedMb,
      "serving others": wasServed(experience, shareOfFailed * experience.calls),
    },
    `${sent}: ${added.toFixed(0)} MiB added; ${describe(experience)}`,
  );
}

/** Reads a few bytes now and then, so that a connection is never without progress. */
async function keepReading(sockets: readonly Socket[], seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    await sleep(1_000);
    for (const socket of sockets) socket.read(100);
  }
}

export const pipelinedPages: Attack = {
  name: "pipelined-pages",
  title: "a stranger pipelines requests for pages and does not read the responses",
  async run(site) {
    const target = await site.start();
    return whileWatched(site, target, async () => {
      const connections = 40;
      const requests = 1_000;
      const request = requestText("GET", "/api-reference/errors-v2/service", {});
      const sockets = await Promise.all(Array.from({ length: connections }, () => openSlowReader(target.httpPort)));
      site.afterwards(() => sockets.forEach((socket) => void socket.destroy()));
      for (const socket of sockets) socket.write(request.repeat(requests));
      await keepReading(sockets, 12);
      return `${connections} connections with ${requests} requests each`;
    });
  },
};

export const unreadPages: Attack = {
  name: "unread-lists",
  title: "a tenant asks for heavy lists by HTTP and does not read them",
  async run(site) {
    const target = await site.start();
    const tenant = await target.createTenant();
    await fillWithHeavyKeys(target, tenant);
    return whileWatched(site, target, async () => {
      const connections = 24;
      const request = postText("/v2/keys.listKeys", tenant.key, "{}");
      const sockets = await Promise.all(Array.from({ length: connections }, () => openSlowReader(target.httpPort)));
      site.afterwards(() => sockets.forEach((socket) => void socket.destroy()));
      for (const socket of sockets) socket.write(request.repeat(50));
      await keepReading(sockets, 12);
      return `${connections} connections, 50 lists of 3 MB each`;
    });
  },
};

export const unreadLists300: Attack = {
  name: "unread-lists-unpipelined",
  title: "a tenant asks for a heavy list on many connections and does not read it",
  async run(site) {
    const target = await site.start();
    const tenant = await target.createTenant();
    await fillWithHeavyKeys(target, tenant);
    return whileWatched(site, target, async () => {
      const connections = 300;
      const request = postText("/v2/keys.listKeys", tenant.key, "{}");
      const sockets = await Promise.all(Array.from({ length: connections }, () => openSlowReader(target.httpPort)));
      site.afterwards(() => sockets.forEach((socket) => void socket.destroy()));
      for (const socket of sockets) socket.write(request);
      await keepReading(sockets, 12);
      return `${connections} connections, a list of 3 MB each`;
    });
  },
};

export const oneByteChunks: Attack = {
  name: "one-byte-chunks",
  title: "a request body in chunks of one byte costs many times its size",
  async run(site) {
    const target = await site.start();
    const { key } = await target.createTenant();
    return whileWatched(site, target, async () => {
      const connections = 20;
      const bytes = 120_000;
      const sockets = await Promise.all(Array.from({ length: connections }, () => openSocket(target.httpPort)));
      site.afterwards(() => sockets.forEach((socket) => void socket.destroy()));
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
  title: "aborted pipelined requests use up the memory budget for good",
  async run(site) {
    const target = await site.start();
    const { key } = await target.createTenant();
    const other = await target.createTenant();
    const large = JSON.stringify({ key: "x", pad: " ".repeat(100_000) });
    for (let round = 0; round < 10; round++) {
      const sockets = await Promise.all(Array.from({ length: 70 }, () => openSocket(target.httpPort)));
      const slow = postText("/v2/keys.deleteKey", key, JSON.stringify({ keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha" }));
      for (const socket of sockets) socket.resume().write(slow + postText("/v2/keys.verifyKey", key, large));
      await sleep(30);
      for (const socket of sockets) socket.resetAndDestroy();
    }
    await sleep(3_000);
    const left = await target.metric("memory_reserved_bytes");
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => target.call("keys.verifyKey", other.key, { key: " ".repeat(60_000) })),
    );
    const refused = answers.filter(({ status }) => status === 503).length;
    return outcomeOf(
      { released: left < 1_000_000, "serving large requests": refused === 0 },
      `${left} bytes reserved afterwards; ${refused} of 20 large requests refused with 503`,
    );
  },
};
