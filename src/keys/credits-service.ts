import type { KeysService, UpdateCreditsRequest } from "../../gen/latchkey/v1/keys_service_pb.js";
import { actorOf, callingKey, type Handlers } from "../call/context.js";
import { toCredits } from "../credits/convert.js";
import type { CreditsChanges, RemainingChange } from "../credits/store.js";
import { invalidInput, keyNotFound } from "../errors.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { KeyCreditsStore } from "./credits-store.js";
import { checkUpdate } from "./scope-rules.js";
import type { KeysStore } from "./store.js";

/** The credits of the keys of the caller's workspace. */
export function createKeyCreditsService(
  keys: Pick<KeysStore, "readKeyVersion">,
  store: KeyCreditsStore,
  keyCache: KeyCache,
) {
  return {
    async updateCredits(request, context) {
      const caller = callingKey(context);
      const changes = toChanges(request);
      context.call.revokes = request.operation !== "increment";
      const timeline = keyCache.knownTimeline();
      const by = actorOf(context);
      // Retries if the key changes between the check and the update.
      for (;;) {
        const current = await keys.readKeyVersion(context.call, caller.workspaceId, request.keyId, by);
        if (current === undefined) throw keyNotFound();
        checkUpdate(caller, current, {});
        if (!current.hasCredits && request.operation !== "set") throw setFirst();
        const credits = await store.updateCredits(context.call, current, changes, by, context.record?.({}));
        if (credits === undefined) continue;
        if (current.hasCredits !== (credits !== null)) await keyCache.awaitPropagation();
        // An earlier attempt with an unknown outcome may have made the key need credits, or not.
        else if (request.operation === "set") await keyCache.awaitEarlierChanges(context.call, timeline);
        return { credits: toCredits(credits) };
      }
    },
  } satisfies Pick<Handlers<typeof KeysService>, "updateCredits">;
}

/** Null: the key needs no credits any more. */
function toChanges({ operation, value }: UpdateCreditsRequest): CreditsChanges | null {
  if (value === undefined) return null;
  return { remaining: { operation: operation as RemainingChange["operation"], value: Number(value) } };
}

function setFirst() {
  return invalidInput([{ location: "operation", message: "must be `set`: the key has no credits yet" }]);
}
