/** A key's secret, the operator's credential, or the raw values of the Authorization headers; `[]` sends none. */
export type CallerCredential = string | readonly string[];

/** Headers, or metadata, to send besides the credential. A name may occur twice. */
export type HeaderLines = readonly (readonly [name: string, value: string])[];

/** All headers of a call: those of the credential, and further ones. */
export function headersOf(credential: CallerCredential, more: HeaderLines = []): [name: string, value: string][] {
  const authorization = typeof credential === "string" ? [`Bearer ${credential}`] : credential;
  return [...authorization.map((value) => ["authorization", value] as const), ...more].map(([...line]) => line);
}
