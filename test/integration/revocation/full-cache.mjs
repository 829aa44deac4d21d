// Fills a tiered cache far beyond its capacity, with keys as another replica wrote them to Redis, and prints by how
// many bytes the heap has grown. It runs in a process of its own, so that nothing else is on the heap.
import { randomBytes } from "node:crypto";
import { mintId } from "../../../dist/src/ids.js";
import { mintSecret } from "../../../dist/src/keys/secret.js";
import { createChangeLog } from "../../../dist/src/revocation/change-log.js";
import { heapSizeOf } from "../../../dist/src/revocation/heap-size.js";
import { keyEntries } from "../../../dist/src/revocation/signed-entry.js";
import { snapshotBefore } from "../../../dist/src/revocation/snapshot.js";
import { createTieredCache } from "../../../dist/src/revocation/tiered-cache.js";
import { noCache } from "../../../dist/src/storage/redis/client.js";

const [kind, capacity, entries] = process.argv.slice(2);
const text = (length) => randomBytes(length).toString("hex").slice(0, length);
const metas = {
  small: () => ({ team: text(7) }),
  "a long text": () => ({ text: text(16_000) }),
  "many small objects": () => ({ list: Array.from({ length: 1_500 }, (_, index) => ({ at: index })) }),
  "many names": () => Object.fromEntries(Array.from({ length: 400 }, () => [text(8), text(20)])),
};

const codec = keyEntries(() => "a secret");
const cache = createTieredCache({
  codec,
  changeLog: createChangeLog(snapshotBefore(0), "timeline"),
  cache: noCache,
  capacity: Number(capacity),
  sizeOf: heapSizeOf,
  async read(id) {
    const [keyId, identityId] = [mintId("key"), mintId("id")];
    const identity = { identityId, externalId: text(10), identityMeta: { plan: text(5) } };
    const dates = { expiresAt: null, identityCreatedAt: new Date(), identityUpdatedAt: new Date() };
    const settings = {
      name: text(12),
      enabled: true,
      scopes: [],
      permissions: [text(14), text(15)],
      meta: metas[kind](),
    };
    const workspaceId = mintId("ws");
    const value = { keyId, workspaceId, workspaceEnabled: true, ...settings, ...identity, ...dates };
    return codec.verify(
      id,
      codec.sign(id, { value, dependsOn: [keyId, identityId], workspaceId, snapshot: snapshotBefore(0) }),
    );
  },
});

const before = heapUsed();
for (let entry = 0; entry < Number(entries); entry++) {
  await cache.load(mintSecret().hash, "postgres");
}
process.stdout.write(`${heapUsed() - before}`);
cache.peek("any key"); // keeps the cache reachable until here

function heapUsed() {
  for (let times = 0; times < 3; times++) globalThis.gc();
  return process.memoryUsage().heapUsed;
}
