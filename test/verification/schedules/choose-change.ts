import type { Dice } from "./dice.js";
import { type ChangeOf, type Contents, identityId, keyId, workspaceId } from "./postgres.js";

/** What a write is to do to which row. */
export interface Change {
  readonly row: string;
  readonly to: ChangeOf;
}

/** In how many milliseconds a key expires that is given an expiry: while a schedule lasts. */
const soon: [number, number] = [137, 411];

/** Mostly a change that alters something; else the repetition of one whose outcome its caller never heard of. */
export function chooseChange(present: Contents, dice: Dice): Change {
  const { workspaceEnabled, keyEnabled, keyEnded, keyExpiresAt } = present;
  const repetition = dice.oneIn(8);
  switch (dice.below(15)) {
    case 0:
      return { row: keyId, to: () => ({ keyDeleted: true }) };
    case 1:
    case 2: {
      const ownerName = `owner ${dice.below(100)}`;
      return { row: identityId, to: () => ({ ownerName }) };
    }
    case 3:
    case 4:
    case 5: {
      const to = repetition ? keyEnabled : !keyEnabled;
      return { row: keyId, to: () => ({ keyEnabled: to }) };
    }
    case 6:
    case 7:
    case 8: {
      if (keyEnded || keyExpiresAt !== null) return { row: keyId, to: () => ({ keyEnded: false, keyExpiresAt: null }) };
      // At once, as by a reroll; or by itself.
      if (dice.oneIn(2)) return { row: keyId, to: (now) => ({ keyEnded: true, keyExpiresAt: Math.floor(now) }) };
      const afterMs = dice.pick(soon);
      return { row: keyId, to: (now) => ({ keyExpiresAt: Math.floor(now + afterMs) }) };
    }
    default: {
      const to = repetition ? workspaceEnabled : !workspaceEnabled;
      return { row: workspaceId, to: () => ({ workspaceEnabled: to }) };
    }
  }
}
