/** A JSON object with this many levels of nesting and a number in the innermost. */
export function nested(levels: number): Record<string, unknown> {
  return levels === 1 ? { leaf: 1 } : { inner: nested(levels - 1) };
}
