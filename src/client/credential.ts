/** Whether a credential can be sent in a header. An unset variable cannot: RegExp would read it as the text `undefined`. */
export function isSendable(credential: string | undefined): boolean {
  return typeof credential === "string" && /^[\x21-\x7e]+$/.test(credential);
}

/**
 * Throws if a credential cannot be sent. Checked here, because the error of Headers would contain the whole value, which
 * is secret.
 */
export function checkCredential(key: string): void {
  if (isSendable(key)) return;
  throw new TypeError(
    "The key must be printable ASCII without spaces. A key that was read from a file may need trim().",
  );
}

/** Throws if an idempotency key cannot be sent. A gRPC server drops such metadata: the call would run without it. */
export function checkIdempotencyKey(key: string | null | undefined): void {
  if (!/^[\x20-\x7e]*$/.test(key ?? "")) throw new TypeError("The Idempotency-Key must be printable ASCII.");
}
