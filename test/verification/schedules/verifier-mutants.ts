import type { Mutant } from "./mutants.js";
import { expired } from "./violations.js";

const lease = "src/revocation/lease.ts";
const delegation = "src/delegation/delegation.ts";
const stream = "src/delegation/stream.ts";
const session = "src/verifier/session.ts";
const grant = "src/verifier/grant.ts";
const keyStates = "src/verifier/key-states.ts";

/** Faults in the protocol between a replica and a verifier. */
export const verifierMutants: readonly Mutant[] = [
  {
    name: "the right counts from the arrival of the grant",
    file: grant,
    text: "answered.sentAt + safetyFactor",
    replacement: "clock.monotonic() + safetyFactor",
  },
  {
    name: "the right has no margin",
    file: grant,
    text: "safetyFactor * remainingMs - maxDriftMs",
    replacement: "remainingMs",
  },
  {
    name: "a grant lasts for a whole lease time",
    file: stream,
    text: "Math.min(lease.remaining(), msToExpiry)",
    replacement: "Math.min(lease.remaining() > 0 ? 250 : 0, msToExpiry)",
  },
  {
    name: "invalidations are sent after the lease was extended",
    file: lease,
    text: "onChanges(isOtherTimeline ? undefined : found.changes);",
    replacement: "void clock.sleep(0).then(() => onChanges(isOtherTimeline ? undefined : found.changes));",
  },
  {
    name: "changes that are not known in detail invalidate nothing",
    file: delegation,
    text: "for (const stream of [...allStreams()]) stream.invalidateAll();",
    replacement: "",
  },
  {
    name: "a key state is sent in a later turn than it was read",
    file: stream,
    text: ".then((found) => sendCurrent(id, hash, found))",
    replacement: `.then(async (found) => {
        await keyCache.get("00".repeat(32));
        if (found) sendKey(id, found);
      })`,
  },
  {
    name: "key states outlive their stream",
    file: session,
    text: "const states = createKeyStates(maxBytes);",
    replacement: `const keptOf = (globalThis.keptStates ??= new WeakMap());
  const kept = keptOf.get(clock) ?? createKeyStates(maxBytes);
  keptOf.set(clock, kept);
  const states = Object.create(kept, { clear: { value: () => isOpen && kept.clear() } });`,
  },
  {
    name: "a verifier gets grants after its own key was revoked",
    file: stream,
    text: "recheckCaller(sendGrant)",
    replacement: "sendGrant({ expiresAt: null })",
  },
  {
    name: "messages are dropped silently",
    file: stream,
    text: "mustInvalidateAll = true;",
    replacement: "",
  },
  {
    name: "a key that does not exist is cached as such",
    file: stream,
    text: 'send({ case: "key", value: { id, result: { case: "notFound", value: {} } } });',
    replacement: `const result = { valid: false, code: VerificationCode.NOT_FOUND };
      send({ case: "key", value: { id, result: { case: "cached", value: { result, dependsOn: [] } } } });`,
  },
  {
    name: "the time of a key with an expiry has no margin for a slow clock",
    file: keyStates,
    text: "usableShare * Number(validForMs)",
    replacement: "Number(validForMs)",
    violation: expired,
  },
  {
    name: "the time of a key with an expiry counts from the arrival of its state",
    file: session,
    text: "states.add(pending.hash, result.value, pending.requestedAt)",
    replacement: "states.add(pending.hash, result.value, readClocks())",
    violation: expired,
  },
  {
    name: "a jump of the verifier's clocks is not noticed",
    file: grant,
    text: "return earlier !== undefined && Math.abs(offset - earlier) > maxDriftMs;",
    replacement: "return false;",
  },
  {
    name: "a grant counts from the last ping, whichever ping it answers",
    file: grant,
    text: "const answered = sent.get(ping);",
    replacement: "const answered = [...sent.values()].at(-1);",
  },
  {
    name: "the right is checked with the clock reading of the previous verification",
    file: grant,
    text: "if (!isFar(clock.wall() - now, offset)) return now;",
    replacement: `if (!isFar(clock.wall() - now, offset)) {
        const previous = sent.remembered ?? now;
        sent.remembered = now;
        return previous;
      }`,
  },
  {
    name: "key states are used without a right",
    file: session,
    text: "if (!isGranted()) return undefined;",
    replacement: "if (!isOpen) return undefined;",
  },
];
