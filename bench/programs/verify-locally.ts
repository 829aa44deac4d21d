// Verifies keys in its own process, with the verifier library. The keys are those of a population.
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { openVerifier, type Verifier } from "../../src/verifier/verifier.js";
import { createPopulation } from "../data/population.js";
import { percentile } from "../statistics.js";
import { serveCommands } from "./control.js";

const { ADDRESS = "", SEED = "", KEYS = "", VERIFIERS = "1" } = process.env;
const keys = Number(KEYS);
const population = createPopulation(SEED, { keys, workspaces: 1 });
const secrets = Array.from({ length: keys }, (_, number) => population.secret(number).plaintext);
const scheme = "Bearer ";
const headers = secrets.map((secret) => scheme + secret);
const verifiers: Verifier[] = [];

/** Calls in one turn of the event loop. The stream to the service is served between the turns. */
const callsPerTurn = 100;

/** How long after each other two turns begin while latencies are measured. */
const latencyTurnMs = 1;

/** A new string, like that of a request: V8 remembers the hash code of a string that it has looked up. */
const secretOfRequest = (number: number) => (headers[number % keys] as string).slice(scheme.length);

/** Verifies a key, and throws unless it is valid. */
async function verifyOne(verifier: Verifier, number: number): Promise<void> {
  const result = await verifier.verify(secrets[number % keys] as string, { permissions: "documents.read" });
  if (!result.valid) throw new Error(`key ${number % keys} is ${result.code}`);
}

/** Opens a verifier with all keys cached. */
async function openWithKeys(): Promise<Verifier> {
  const verifier = await openVerifier({ address: ADDRESS, key: secrets[0] as string });
  try {
    for (let number = 0; number < keys; number += callsPerTurn) {
      const batch = Array.from({ length: Math.min(callsPerTurn, keys - number) }, (_, index) => number + index);
      await Promise.all(batch.map((each) => verifyOne(verifier, each)));
    }
    return verifier;
  } catch (error) {
    await verifier.close();
    throw error;
  }
}

/** How often opening is tried again if it fails, and the pause before each attempt. */
const retries = { max: 20, pauseMs: 500 };

await serveCommands({
  /** Opens the verifiers, each with all keys cached. */
  async open() {
    for (let attemptsLeft = retries.max; verifiers.length < Number(VERIFIERS); ) {
      try {
        verifiers.push(await openWithKeys());
      } catch (error) {
        // On an overloaded machine the service may be unavailable for a moment. Before a load starts, this is no reason
        // to fail.
        if (attemptsLeft-- === 0) throw error;
        await sleep(retries.pauseMs);
      }
    }
  },

  /** Verifies cached keys in turn, as fast as possible. */
  async run(seconds) {
    const [verifier] = verifiers as [Verifier];
    const begin = performance.now();
    let calls = 0;
    while (performance.now() - begin < seconds * 1_000) {
      for (let call = 0; call < callsPerTurn; call++, calls++) {
        const result = verifier.verify(secretOfRequest(calls), { permissions: "documents.read" });
        if (result instanceof Promise) await result;
        else if (!result.valid) throw new Error(`key ${calls % keys} is ${result.code}`);
      }
      await nextTurn();
    }
    return { calls, seconds: (performance.now() - begin) / 1_000 };
  },

  /** Measures the time of each verification, of keys in random order. */
  async latency(seconds) {
    const [verifier] = verifiers as [Verifier];
    const before = verifier.stats;
    const latencies: number[] = [];
    const pending: Promise<void>[] = [];
    const measure = async (number: number) => {
      const secret = secretOfRequest(number);
      const begin = performance.now();
      const result = verifier.verify(secret, { permissions: "documents.read" });
      const { valid, code } = result instanceof Promise ? await result : result;
      latencies.push(performance.now() - begin);
      if (!valid) throw new Error(`key ${number} is ${code}`);
    };
    for (const end = performance.now() + seconds * 1_000; performance.now() < end; ) {
      for (let call = 0; call < callsPerTurn; call++) pending.push(measure(Math.floor(Math.random() * keys)));
      await Promise.all(pending.splice(0));
      await new Promise((resolve) => setTimeout(resolve, latencyTurnMs));
    }
    const { local, remote } = verifier.stats;
    const at = (fraction: number) => percentile(latencies, fraction);
    return {
      p50: at(0.5),
      p99: at(0.99),
      p999: at(0.999),
      calls: latencies.length,
      seconds,
      local: local - before.local,
      remote: remote - before.remote,
    };
  },

  /** Verifies one key with each verifier once a second, so that all of them renew their grants. */
  async active(seconds) {
    for (let second = 0; second < seconds; second++) {
      const next = new Promise((resolve) => setTimeout(resolve, 1_000));
      for (const verifier of verifiers) await verifyOne(verifier, 0);
      await next;
    }
  },

  /** Does nothing for this long. */
  idle: (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1_000)),
});
