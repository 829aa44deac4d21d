import {
  openUnchecked,
  type Target,
  type UncheckedClient,
  type UncheckedClientKind,
} from "../support/clients/unchecked.js";

/** Longer than the maximum duration of a call. */
const timeoutMs = 20_000;

/** A client with one connection. */
export function openClient(kind: UncheckedClientKind, target: Target): UncheckedClient {
  return openUnchecked(kind, target, { timeoutMs, maxConnections: 1 });
}
