/** Whether granted scopes, or permissions, cover a wanted one, which may itself be a wildcard. */
export function covers(granted: readonly string[], wanted: string): boolean {
  for (const grant of granted) {
    if (grant === wanted || grant === "*") return true;
    if (grant.endsWith(".*") && wanted.startsWith(grant.slice(0, -1))) return true;
  }
  return false;
}
