// Verifies keys with the library, in a process that can be frozen, cut off and killed. It receives the callers and the
// keys from its parent, and reports what it has seen.
import { pathToFileURL } from "node:url";

const { VERIFIER_MODULE: module, ADDRESSES: addresses, RATE: rate } = process.env;
const { openVerifier } = await import(pathToFileURL(module).href);

/** The clock of the machine, which all processes share. The shim of other clocks does not replace it. */
const now = () => Number(process.hrtime.bigint()) / 1e6;

const tickMs = 4;
const reportMs = 25;

/**
 * Consecutive calls with the same result are reported as one group, with the times of the first and the last. That
 * loses nothing: a value that changes to another and back takes two changes, which wait longer than a group lasts.
 */
const maxGroupMs = 60;

/** The pause before a verifier is opened that could not be opened. */
const retryMs = 200;

/** By secret. */
const verifiers = new Map();
let calls = [];
let due = 0;
let next = 0;
let lastTick = now();
let ended = [];
const counts = { remote: 0, failed: 0, reconnects: 0 };

function keepOpen(secret) {
  const entry = { verifier: undefined, isWanted: true };
  verifiers.set(secret, entry);
  (async () => {
    while (entry.isWanted && entry.verifier === undefined) {
      try {
        const onDisconnect = () => {
          counts.reconnects += 1;
        };
        const opened = await openVerifier({ address: JSON.parse(addresses), key: secret, onDisconnect });
        if (entry.isWanted) entry.verifier = opened;
        else await opened.close();
      } catch {
        await new Promise((resolve) => setTimeout(resolve, retryMs)); // revoked at present, or no replica answers
      }
    }
  })();
}

process.on("message", ({ callers, keys }) => {
  for (const [secret, entry] of verifiers) {
    if (callers.includes(secret)) continue;
    entry.isWanted = false;
    verifiers.delete(secret);
    void entry.verifier?.close();
  }
  for (const secret of callers) if (!verifiers.has(secret)) keepOpen(secret);
  const known = new Map(calls.map((call) => [call.id, call]));
  for (const call of calls) endGroup(call);
  calls = keys.map((key) => known.get(key.id) ?? { ...key, group: undefined, isAwaited: false });
});

function endGroup(call) {
  if (call.group !== undefined) ended.push(call.group);
  call.group = undefined;
}

function record(call, code, begin, end) {
  const { group } = call;
  if (group !== undefined && group.code === code && end - group.first[0] < maxGroupMs) {
    group.last = [begin, end];
    group.count += 1;
    return;
  }
  endGroup(call);
  call.group = { id: call.id, code, first: [begin, end], last: [begin, end], count: 1, isLocal: true };
}

/** Returns whether the call was answered here. */
function verify(call) {
  const verifier = verifiers.get(call.caller)?.verifier;
  if (verifier === undefined || call.isAwaited) return false;
  const begin = now();
  const result = verifier.verify(call.secret, call.permissions === undefined ? {} : { permissions: call.permissions });
  if (!(result instanceof Promise)) {
    record(call, result.code, begin, now());
    return true;
  }
  call.isAwaited = true;
  result
    .then(({ code }) => {
      counts.remote += 1;
      const times = [begin, now()];
      ended.push({ id: call.id, code, first: times, last: times, count: 1, isLocal: false });
    })
    .catch(() => {
      counts.failed += 1;
    })
    .finally(() => {
      call.isAwaited = false;
    });
  return false;
}

setInterval(() => {
  const at = now();
  // Missed calls are dropped, such as those of a time in which the process was frozen.
  due = Math.min(due + ((at - lastTick) * Number(rate)) / 1_000, Number(rate) / 20);
  lastTick = at;
  // Only local verifications count, until no key can be verified locally.
  for (let misses = 0; due >= 1 && misses < calls.length; ) {
    if (verify(calls[next++ % calls.length])) {
      due -= 1;
      misses = 0;
    } else misses += 1;
  }
}, tickMs);

setInterval(() => {
  for (const call of calls) endGroup(call);
  process.send({ groups: ended, counts });
  ended = [];
}, reportMs);

process.send({ isReady: true });
