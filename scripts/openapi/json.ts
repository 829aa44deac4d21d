/** A piece of the document: what a JSON object can hold. Members that are undefined are left out when it is written. */
export interface JsonObject {
  readonly [name: string]: Json | undefined;
}

/** What JSON can hold. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject;
