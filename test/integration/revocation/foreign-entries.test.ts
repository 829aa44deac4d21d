import { beforeEach, describe, expect, it } from "vitest";
import { mintSecret } from "../../../src/keys/secret.js";
import type { LeaseTerms } from "../../../src/revocation/change-store.js";
import type { KeyRecord } from "../../../src/revocation/key-state.js";
import { type EntryCodec, keyEntries, workspaceEntries } from "../../../src/revocation/signed-entry.js";
import { type Snapshot, snapshotBefore, writeSnapshot } from "../../../src/revocation/snapshot.js";
import { succeed } from "../../support/calls.js";
import { disable } from "../../support/clients/verify-calls.js";
import {
  type CachedWorkspace,
  callBoth,
  createCachedWorkspace,
  hashOf,
  keyEntryOf,
  outcomes,
  readTerms,
  workspaceEntryOf,
} from "../../support/redis-entries.js";
import { openReplicas } from "../../support/redis-replicas.js";

const replicas = openReplicas();
/** The workspace of a key with all scopes. */
let home: CachedWorkspace;
/** A key without scopes. */
let unprivileged: { keyId: string; key: string };
let terms: LeaseTerms;

beforeEach(async () => {
  home = await createCachedWorkspace(replicas.app, replicas.redis);
  unprivileged = await succeed(replicas.app.httpUrl, "keys.createKey", home.key, { permissions: ["*"] });
  terms = await readTerms(replicas.app);
});

/** An entry that grants all scopes to the unprivileged key, signed with this secret. */
function forgedEntry(
  secret: string,
  snapshot: Snapshot,
  codec: EntryCodec<KeyRecord> = keyEntries(() => secret),
): string {
  const known = keyEntries(() => terms.timeline).verify(hashOf(home.key), home.keyEntry);
  if (known === undefined) return expect.fail("the entry of a key cannot be verified with the secret of its database");
  const value = { ...known.value, keyId: unprivileged.keyId };
  return codec.sign(hashOf(unprivileged.key), {
    value,
    dependsOn: [unprivileged.keyId],
    workspaceId: home.workspaceId,
    snapshot,
  });
}

/** A snapshot with transaction ids that the database has not reached. */
const future = () => snapshotBefore(terms.snapshot.xmax + 1_000_000);

describe("scopes cannot be obtained by writing to Redis", () => {
  it("control: with the correct signature they can be, so the other tests here do test the signature", async () => {
    await replicas.redis.set(keyEntryOf(unprivileged.key), forgedEntry(terms.timeline, terms.snapshot));
    expect(await callBoth(replicas.others, unprivileged.key)).toEqual(outcomes.served);
  });

  it.each<[string, () => string]>([
    ["with the signature of another secret", () => forgedEntry("another", terms.snapshot)],
    ["with an empty signature", () => `.${textOf(forgedEntry(terms.timeline, terms.snapshot))}`],
    ["without a signature", () => textOf(forgedEntry(terms.timeline, terms.snapshot))],
    [
      "with the signature of another text",
      () => `${home.keyEntry.slice(0, 43)}.${textOf(forgedEntry(terms.timeline, terms.snapshot))}`,
    ],
    ["with half a signature", () => forgedEntry(terms.timeline, terms.snapshot).slice(20)],
    ["with a character before the signature", () => ` ${forgedEntry(terms.timeline, terms.snapshot)}`],
    ["with a character after the text", () => `${forgedEntry(terms.timeline, terms.snapshot)} `],
    ["by copying the entry of a key that has them", () => home.keyEntry],
    ["by copying the entry of a workspace", () => home.workspaceEntry],
    ["with an entry from the future", () => forgedEntry(terms.timeline, future())],
  ])("%s", async (_how, entry) => {
    await replicas.redis.set(keyEntryOf(unprivileged.key), entry());
    expect(await callBoth(replicas.others, unprivileged.key)).toEqual(outcomes.notPermitted);
  });

  it("for a key that was never created", async () => {
    const { plaintext } = mintSecret();
    await replicas.redis.set(keyEntryOf(plaintext), home.keyEntry);
    expect(await callBoth(replicas.others, plaintext)).toEqual(outcomes.keyUnknown);
  });
});

describe("a disabled workspace cannot be enabled by writing to Redis", () => {
  const enabledAt = (snapshot: Snapshot, secret = terms.timeline) =>
    workspaceEntries(() => secret).sign(home.workspaceId, {
      value: { enabled: true, hasImports: true },
      dependsOn: [home.workspaceId],
      workspaceId: home.workspaceId,
      snapshot,
    });

  it.each<[string, (other: CachedWorkspace) => string]>([
    ["with the signature of another secret", () => enabledAt(terms.snapshot, "another")],
    ["without a signature", () => `enabled@${writeSnapshot(terms.snapshot)}`],
    ["by copying the entry of another", (other) => other.workspaceEntry],
    ["with an entry from the future", () => enabledAt(future())],
  ])("%s", async (_how, entry) => {
    const other = await createCachedWorkspace(replicas.app, replicas.redis);
    // The key is cached, so that only the workspace is read from Redis.
    expect(await callBoth(replicas.others, home.key)).toEqual(outcomes.served);
    await disable(replicas.app, home.workspaceId);
    terms = await readTerms(replicas.app);
    await replicas.redis.set(workspaceEntryOf(home.workspaceId), entry(other));
    expect(await callBoth(replicas.others, home.key)).toEqual(outcomes.workspaceDisabled);
  });
});

describe("a malformed entry is ignored, and PostgreSQL answers", () => {
  it.each<[string, (name: string) => Promise<unknown>]>([
    ["nothing", text("")],
    ["a dot", text(".")],
    ["many dots", text(".".repeat(100))],
    ["a state without a signature", text("enabled@9:999999:")],
    ["JSON", text('{"enabled":true,"scopes":["*"],"asOf":"9:999999:"}')],
    ["broken JSON", text(`${"A".repeat(43)}.{"value":`)],
    ["null", text(`${"A".repeat(43)}.null`)],
    ["a signature with the right number of characters, but not of bytes", text(`${"ä".repeat(43)}.enabled@1`)],
    ["binary", text(Buffer.from([0, 255, 46, 0, 254, 13, 10]))],
    ["a megabyte", text("x".repeat(1_000_000))],
    ["a list", (name) => replicas.redis.rpush(name, "enabled@999999")],
    ["a hash", (name) => replicas.redis.hset(name, "enabled", "999999")],
    ["a set", (name) => replicas.redis.sadd(name, "enabled@999999")],
  ])("%s", async (_what, put) => {
    const { workspaceId, key } = await createCachedWorkspace(replicas.app, replicas.redis);
    const { workspaceId: cachedId, key: cachedKey } = await createCachedWorkspace(replicas.app, replicas.redis);
    expect(await callBoth(replicas.others, cachedKey)).toEqual(outcomes.served);
    await disable(replicas.app, cachedId);
    for (const name of [keyEntryOf(key), workspaceEntryOf(workspaceId), workspaceEntryOf(cachedId)]) {
      await replicas.redis.del(name);
      await put(name);
    }
    expect(await callBoth(replicas.others, key)).toEqual(outcomes.served);
    expect(await callBoth(replicas.others, cachedKey)).toEqual(outcomes.workspaceDisabled);
    // The malformed entry is replaced by a valid one, unless that write timed out.
    await expect.poll(() => replicas.redis.type(keyEntryOf(key))).toBe("string");
  });
});

const textOf = (entry: string) => entry.slice(entry.indexOf(".") + 1);
const text = (value: string | Buffer) => (name: string) => replicas.redis.set(name, value);
