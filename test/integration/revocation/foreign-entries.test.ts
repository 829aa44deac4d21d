import { beforeEach, describe, expect, it } from "vitest";
import { mintSecret } from "../../../src/keys/secret.js";
import type { LeaseTerms } from "../../../src/revocation/change-store.js";
import type { KeyRecord } from "../../../src/revocation/key-state.js";
import { type EntryCodec, keyEntries, workspaceEntries } from "../../../src/revocation/signed-entry.js";
import { type Snapshot, snapshotBefore, writeSnapshot } from "../../../src/revocation/snapshot.js";
import { succeed } from "../../support/calls.js";
import { disable } from "../../support/clients/verify-calls.js";
import {
  askBoth,
  createShared,
  hashOf,
  keyEntryOf,
  outcomes,
  readTerms,
  type Shared,
  workspaceEntryOf,
} from "../../support/redis-entries.js";
import { openReplicas } from "../../support/redis-replicas.js";

const replicas = openReplicas();
/** The workspace of a key that may do everything. */
let home: Shared;
/** A key that may do nothing. */
let poor: { keyId: string; key: string };
let terms: LeaseTerms;

beforeEach(async () => {
  home = await createShared(replicas.app, replicas.redis);
  poor = await succeed(replicas.app.httpUrl, "keys.createKey", home.key, { permissions: ["*"] });
  terms = await readTerms(replicas.app);
});

/** The entry of a key that may do everything, as somebody with this seal would write it for the poor one. */
function richEntry(history: string, asOf: Snapshot, form: EntryCodec<KeyRecord> = keyEntries(() => history)): string {
  const known = keyEntries(() => terms.history).verify(hashOf(home.key), home.keyEntry);
  if (known === undefined) return expect.fail("the entry of a key cannot be opened with the seal of its database");
  const value = { ...known.value, keyId: poor.keyId };
  return form.sign(hashOf(poor.key), { value, dependsOn: [poor.keyId], workspaceId: home.workspaceId, snapshot: asOf });
}

/** Of transactions that are yet to come. */
const future = () => snapshotBefore(terms.snapshot.xmax + 1_000_000);

describe("scopes cannot be had by writing to Redis", () => {
  it("with the right seal they could: the other tests here would notice if they tested nothing", async () => {
    await replicas.redis.set(keyEntryOf(poor.key), richEntry(terms.history, terms.snapshot));
    expect(await askBoth(replicas.others, poor.key)).toEqual(outcomes.served);
  });

  it.each<[string, () => string]>([
    ["with another seal", () => richEntry("another", terms.snapshot)],
    ["with an empty seal", () => `.${textOf(richEntry(terms.history, terms.snapshot))}`],
    ["without a seal", () => textOf(richEntry(terms.history, terms.snapshot))],
    [
      "with the seal of another text",
      () => `${home.keyEntry.slice(0, 43)}.${textOf(richEntry(terms.history, terms.snapshot))}`,
    ],
    ["with half a seal", () => richEntry(terms.history, terms.snapshot).slice(20)],
    ["with something before the seal", () => ` ${richEntry(terms.history, terms.snapshot)}`],
    ["with something after the text", () => `${richEntry(terms.history, terms.snapshot)} `],
    ["by copying the entry of a key that has them", () => home.keyEntry],
    ["by copying the entry of a workspace", () => home.workspaceEntry],
    ["with an entry from the future", () => richEntry(terms.history, future())],
  ])("%s", async (_how, entry) => {
    await replicas.redis.set(keyEntryOf(poor.key), entry());
    expect(await askBoth(replicas.others, poor.key)).toEqual(outcomes.notPermitted);
  });

  it("not even by a key that was never created", async () => {
    const { plaintext } = mintSecret();
    await replicas.redis.set(keyEntryOf(plaintext), home.keyEntry);
    expect(await askBoth(replicas.others, plaintext)).toEqual(outcomes.keyUnknown);
  });
});

describe("a disabled workspace cannot be revived by writing to Redis", () => {
  const enabledAt = (asOf: Snapshot, history = terms.history) =>
    workspaceEntries(() => history).sign(home.workspaceId, {
      value: true,
      dependsOn: [home.workspaceId],
      workspaceId: home.workspaceId,
      snapshot: asOf,
    });

  it.each<[string, (other: Shared) => string]>([
    ["with another seal", () => enabledAt(terms.snapshot, "another")],
    ["without a seal", () => `enabled@${writeSnapshot(terms.snapshot)}`],
    ["by copying the entry of another", (other) => other.workspaceEntry],
    ["with an entry from the future", () => enabledAt(future())],
  ])("%s", async (_how, entry) => {
    const other = await createShared(replicas.app, replicas.redis);
    // Held, so that the workspace alone is looked for.
    expect(await askBoth(replicas.others, home.key)).toEqual(outcomes.served);
    await disable(replicas.app, home.workspaceId);
    terms = await readTerms(replicas.app);
    await replicas.redis.set(workspaceEntryOf(home.workspaceId), entry(other));
    expect(await askBoth(replicas.others, home.key)).toEqual(outcomes.workspaceDisabled);
  });
});

describe("an odd entry is no entry: Postgres answers", () => {
  it.each<[string, (name: string) => Promise<unknown>]>([
    ["nothing", text("")],
    ["a dot", text(".")],
    ["many dots", text(".".repeat(100))],
    ["a state without a seal", text("enabled@9:999999:")],
    ["JSON", text('{"enabled":true,"scopes":["*"],"asOf":"9:999999:"}')],
    ["broken JSON", text(`${"A".repeat(43)}.{"value":`)],
    ["null", text(`${"A".repeat(43)}.null`)],
    ["a seal of as many characters, though not of as many bytes", text(`${"ä".repeat(43)}.enabled@1`)],
    ["binary", text(Buffer.from([0, 255, 46, 0, 254, 13, 10]))],
    ["a megabyte", text("x".repeat(1_000_000))],
    ["a list", (name) => replicas.redis.rpush(name, "enabled@999999")],
    ["a hash", (name) => replicas.redis.hset(name, "enabled", "999999")],
    ["a set", (name) => replicas.redis.sadd(name, "enabled@999999")],
  ])("%s", async (_what, put) => {
    const { workspaceId, key } = await createShared(replicas.app, replicas.redis);
    const { workspaceId: heldId, key: heldKey } = await createShared(replicas.app, replicas.redis);
    expect(await askBoth(replicas.others, heldKey)).toEqual(outcomes.served);
    await disable(replicas.app, heldId);
    for (const name of [keyEntryOf(key), workspaceEntryOf(workspaceId), workspaceEntryOf(heldId)]) {
      await replicas.redis.del(name);
      await put(name);
    }
    expect(await askBoth(replicas.others, key)).toEqual(outcomes.served);
    expect(await askBoth(replicas.others, heldKey)).toEqual(outcomes.workspaceDisabled);
    // And it is replaced by a good one, unless that write was given up.
    await expect.poll(() => replicas.redis.type(keyEntryOf(key))).toBe("string");
  });
});

const textOf = (entry: string) => entry.slice(entry.indexOf(".") + 1);
const text = (value: string | Buffer) => (name: string) => replicas.redis.set(name, value);
