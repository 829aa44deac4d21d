/** A JSON object of so many levels, one object in the other, with a number in the innermost. */
export function nested(levels: number): Record<string, unknown> {
  return levels === 1 ? { leaf: 1 } : { inner: nested(levels - 1) };
}
