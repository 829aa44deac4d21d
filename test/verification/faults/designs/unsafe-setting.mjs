// The service's own design, except that it does not look at how PostgreSQL is set. Broken, because with
// `synchronous_commit = off` a commit is reported before it is on disk, and a crash takes it back.
import { createChangesStore as createSound } from "./change-store.as-built.js";

export function createChangesStore(sql) {
  const store = createSound(sql);
  return {
    ...store,
    readTerms: async () => ({ ...(await store.readTerms()), unsafeSetting: null }),
    changedSince: async (seen) => ({ ...(await store.changedSince(seen)), unsafeSetting: null }),
  };
}
