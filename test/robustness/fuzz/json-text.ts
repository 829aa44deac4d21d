// Writes JSON that no serializer writes: with numbers outside JavaScript's range, and with duplicate members.

/** A placeholder for text that is written verbatim. */
export interface Verbatim {
  readonly verbatim: string;
}

/** Members in order. Names may repeat. */
export interface Members {
  readonly members: readonly (readonly [string, unknown])[];
}

/** Writes a value as JSON text. Lone surrogates are escaped. */
export function jsonText(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(jsonText).join(",")}]`;
  if (Object.hasOwn(value, "verbatim")) return (value as Verbatim).verbatim;
  const entries = Object.hasOwn(value, "members") ? (value as Members).members : Object.entries(value);
  return `{${entries.map(([name, item]) => `${JSON.stringify(name)}:${jsonText(item)}`).join(",")}}`;
}
