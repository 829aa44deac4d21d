import type { Dice } from "./dice.js";
import { type Contents, identityId, keyId, workspaceId } from "./postgres.js";

/** What a write is to do to which row. */
export interface Change {
  readonly row: string;
  readonly to: Partial<Contents>;
}

/** Mostly a change that alters something; else the repetition of one whose outcome its caller never heard of. */
export function chooseChange({ workspaceEnabled, keyEnabled }: Contents, dice: Dice): Change {
  const repetition = dice.oneIn(8);
  switch (dice.below(12)) {
    case 0:
      return { row: keyId, to: { keyDeleted: true } };
    case 1:
    case 2:
      return { row: identityId, to: { ownerName: `owner ${dice.below(100)}` } };
    case 3:
    case 4:
    case 5:
      return { row: keyId, to: { keyEnabled: repetition ? keyEnabled : !keyEnabled } };
    default:
      return { row: workspaceId, to: { workspaceEnabled: repetition ? workspaceEnabled : !workspaceEnabled } };
  }
}
