// The service's own design, except that it ignores PostgreSQL's warnings. Broken, because a change whose wait for the
// standby was cancelled counts as done, although the standby does not have it.
export * from "./connection.as-built.js";

export function listenForWarnings() {
  return () => {};
}
