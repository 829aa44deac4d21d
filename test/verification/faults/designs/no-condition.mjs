// The service's own design, except that the statement of a change does not depend on the state of its caller. Broken,
// because a change may wait for a connection, or in the network, while its caller is revoked.
import { callerUnchanged as callerUnchangedSound } from "./authorized-key.as-built.js";

export * from "./authorized-key.as-built.js";

export function callerUnchanged() {
  const operator = undefined;
  return callerUnchangedSound(operator);
}
