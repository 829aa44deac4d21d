// The service's own design, except that it does not listen to PostgreSQL's warnings. Broken, because a change counts as
// done that the standby does not have: its wait for the standby was cancelled.
export * from "./connection.as-built.js";

export function listenForWarnings() {
  return () => {};
}
