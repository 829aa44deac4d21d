/** Up to this many strings, it is faster to compare each than to create a set. */
const maxCompared = 32;

/** Whether granted scopes or permissions cover a required one, which may itself be a wildcard. */
export function covers(granted: readonly string[], required: string): boolean {
  return isCovered((grant) => granted.includes(grant), required);
}

/**
 * The same for any number of required ones. A key may have thousands of permissions by its roles, and a query may name
 * hundreds: to compare each with each would block the event loop for 20 ms.
 */
export function coverageOf(granted: readonly string[]): (required: string) => boolean {
  if (granted.length <= maxCompared) return (required) => covers(granted, required);
  const grants = new Set(granted);
  return (required) => isCovered((grant) => grants.has(grant), required);
}

function isCovered(isGranted: (grant: string) => boolean, required: string): boolean {
  if (isGranted(required) || isGranted("*")) return true;
  for (let dot = required.indexOf("."); dot !== -1; dot = required.indexOf(".", dot + 1)) {
    if (isGranted(`${required.slice(0, dot)}.*`)) return true;
  }
  return false;
}
