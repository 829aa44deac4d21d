import type { Target, Tenant } from "./target.js";

/** Fills a workspace with one page of keys and identities of maximum size, about 3 MB as JSON. */
export async function fillWithLargeKeys(target: Target, { key }: Tenant): Promise<void> {
  const meta = { text: "x".repeat(16_000) };
  for (let index = 0; index < 100; index++) {
    const externalId = `heavy_${index}`;
    const identity = await target.call("identities.createIdentity", key, { externalId, meta });
    const created = await target.call("keys.createKey", key, { externalId, meta });
    if (identity.status !== 200 || created.status !== 200) throw new Error(`large keys: ${created.error}`);
  }
}
