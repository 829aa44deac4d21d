import { expect, it } from "vitest";
import type { Call } from "../../../src/call/call.js";
import { findKey } from "../../../src/keys/find-key.js";
import { hashSecret, mintSecret } from "../../../src/keys/secret.js";
import type { KeyState } from "../../../src/revocation/key-state.js";

const { plaintext: secret, hash } = mintSecret();
const call = {} as Call;

/** A cache with one key in memory, which answers only under the lease. Records which hashes are looked up. */
function cacheOf(workspaceId: string) {
  const state = { key: { workspaceId }, workspaceEnabled: true } as KeyState;
  const lookedUp: string[] = [];
  let hasLease = false;
  const peek = (asked: string) => (hasLease && asked === hash ? state : undefined);
  return {
    state,
    lookedUp,
    cache: {
      async ensureLease() {
        hasLease = true;
      },
      peek,
      async get(asked: string) {
        hasLease = true;
        if (peek(asked) === undefined) lookedUp.push(asked);
        return peek(asked);
      },
      mayHaveImports: () => false,
    },
  };
}

it("after a lapsed lease, a cached key of another workspace takes the lookup of a key that does not exist", async () => {
  const { cache, lookedUp } = cacheOf("ws_other");
  expect(await findKey(cache, "ws_mine", hash, call, secret)).toBeUndefined();
  expect(lookedUp).toEqual([hashSecret(hash)]);
});

it("after a lapsed lease, a cached key of the workspace takes no lookup", async () => {
  const { cache, lookedUp, state } = cacheOf("ws_mine");
  expect(await findKey(cache, "ws_mine", hash, call, secret)).toBe(state.key);
  expect(lookedUp).toEqual([]);
});
