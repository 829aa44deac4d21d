/** Whether granted scopes or permissions cover a required one, which may itself be a wildcard. */
export function covers(granted: readonly string[], required: string): boolean {
  for (const grant of granted) {
    if (grant === required || grant === "*") return true;
    if (grant.endsWith(".*") && required.startsWith(grant.slice(0, -1))) return true;
  }
  return false;
}
