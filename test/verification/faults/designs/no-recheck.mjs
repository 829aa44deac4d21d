// The service's own design, except that a caller is authenticated when its headers arrive, and not again with its body.
// Broken, because a caller that is revoked meanwhile is served, however late its body arrives.
import { createAuthentication as createSound } from "./authenticate.as-built.js";

export function createAuthentication(...sources) {
  return { ...createSound(...sources), recheck: (_call, caller) => caller };
}
