/** A JSON object of the document. Undefined members are omitted when it is written. */
export interface JsonObject {
  readonly [name: string]: Json | undefined;
}

/** Any JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject;
