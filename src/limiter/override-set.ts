/** Limits that replace those of requests. */
export interface Override {
  readonly overrideId: string;
  /** An identifier, or a pattern in which `*` stands for any characters. */
  readonly identifier: string;
  readonly limit: number;
  /** The length of a window in milliseconds. */
  readonly duration: number;
}

/** The overrides of one namespace. */
export interface OverrideSet {
  /** The override for an identifier: one with exactly this text, otherwise the most specific pattern that matches. */
  find(identifier: string): Override | undefined;
}

/** The set without overrides. */
const emptySet: OverrideSet = { find: () => undefined };

/** @param overrides the oldest first. Of equally specific patterns, the older one applies */
export function createOverrideSet(overrides: readonly Override[]): OverrideSet {
  if (overrides.length === 0) return emptySet;
  const byIdentifier = new Map(overrides.map((override) => [override.identifier, override]));
  const patterns = overrides
    .filter(({ identifier }) => identifier.includes("*"))
    .map((override) => ({ override, parts: override.identifier.split("*") }))
    .sort((one, other) => literalLength(other.parts) - literalLength(one.parts));
  return {
    find: (identifier) =>
      byIdentifier.get(identifier) ?? patterns.find(({ parts }) => matches(parts, identifier))?.override,
  };
}

function literalLength(parts: readonly string[]): number {
  return parts.reduce((sum, part) => sum + part.length, 0);
}

/**
 * Whether a text consists of these parts with any characters in between. The leftmost match of each part leaves the most
 * for the next, so no match is ever tried again: unlike with a regular expression, the time is linear in the length of the
 * text for any pattern.
 *
 * @param parts at least two
 */
function matches(parts: readonly string[], text: string): boolean {
  const first = parts[0] as string;
  const last = parts[parts.length - 1] as string;
  const end = text.length - last.length;
  if (end < first.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  let position = first.length;
  for (let index = 1; index < parts.length - 1; index++) {
    const part = parts[index] as string;
    const found = text.indexOf(part, position);
    if (found === -1) return false;
    position = found + part.length;
  }
  return position <= end;
}
