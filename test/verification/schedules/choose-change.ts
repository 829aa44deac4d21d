import type { Dice } from "./dice.js";
import { type ChangeOf, type Contents, identityId, keyId, workspaceId } from "./postgres.js";

/** A row, and the change that a write makes to it. */
export interface Change {
  readonly row: string;
  readonly to: ChangeOf;
}

/** In how many milliseconds a key expires that is given an expiry: within the schedule. */
const expiryMs: [number, number] = [137, 411];

/** Mostly a change that alters something, otherwise the retry of a change whose outcome its caller never received. */
export function chooseChange(present: Contents, dice: Dice): Change {
  const { workspaceEnabled, keyEnabled, keyEnded, keyExpiresAt } = present;
  const isRetry = dice.oneIn(8);
  switch (dice.below(15)) {
    case 0:
      // A workspace can be deleted only while it is disabled.
      return dice.oneIn(2)
        ? { row: keyId, to: () => ({ keyDeleted: true }) }
        : { row: workspaceId, to: () => ({ workspaceEnabled: false, workspaceDeleted: true }) };
    case 1:
    case 2: {
      const ownerName = `owner ${dice.below(100)}`;
      return { row: identityId, to: () => ({ ownerName }) };
    }
    case 3:
    case 4:
    case 5: {
      const to = isRetry ? keyEnabled : !keyEnabled;
      return { row: keyId, to: () => ({ keyEnabled: to }) };
    }
    case 6:
    case 7:
    case 8: {
      if (keyEnded || keyExpiresAt !== null) return { row: keyId, to: () => ({ keyEnded: false, keyExpiresAt: null }) };
      // Ended at once, as by a reroll, or by its expiry.
      if (dice.oneIn(2)) return { row: keyId, to: (now) => ({ keyEnded: true, keyExpiresAt: Math.floor(now) }) };
      const afterMs = dice.pick(expiryMs);
      return { row: keyId, to: (now) => ({ keyExpiresAt: Math.floor(now + afterMs) }) };
    }
    default: {
      const to = isRetry ? workspaceEnabled : !workspaceEnabled;
      return { row: workspaceId, to: () => ({ workspaceEnabled: to }) };
    }
  }
}
