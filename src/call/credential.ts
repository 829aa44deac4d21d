import { malformedCredential } from "../errors.js";

/** The bearer token of an Authorization header. */
export function bearerToken(header: string): string {
  const [, token] = /^Bearer +(\S+)$/i.exec(header) ?? [];
  if (token === undefined) throw malformedCredential("The Authorization header is not of the form `Bearer <API_KEY>`.");
  return token;
}
