import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { nestedMessageOf } from "../../src/rpc/message-limits.js";

/** A field of a request, or of a message in the request. Of a list of messages, it is in the first one. */
export interface Place {
  readonly field: DescField;
  /** The fields that lead to it, from the request inwards. Empty for a field of the request itself. */
  readonly outer: readonly DescField[];
  /** Its location in errors: `credits.refill` or `limits[0].name`. */
  readonly location: string;
}

/** Every field of a request, and of all messages in it. */
export function placesIn(schema: DescMessage, outer: readonly DescField[] = [], prefix = ""): Place[] {
  return schema.fields.flatMap((field): Place[] => {
    const location = prefix + field.jsonName;
    const nested = nestedMessageOf(field);
    const inner = field.fieldKind === "list" ? `${location}[0].` : `${location}.`;
    return [{ field, outer, location }, ...(nested ? placesIn(nested, [...outer, field], inner) : [])];
  });
}

/** A request in the names of HTTP/JSON. */
type Members = Readonly<Record<string, unknown>>;

/**
 * The request with another value at a place. Other fields of the same oneof are removed.
 *
 * @param missing creates a message that the place is in and that the request does not have; by default an empty one
 */
export function withValue(
  request: Members,
  place: Place,
  value: unknown,
  missing?: (message: DescMessage) => Members,
): Members {
  return withMessage(request, place, (message) => withField(message, place.field, value), missing) as Members;
}

/** The request with another message around a place, which may be any JSON. */
export function withMessage(
  request: Members,
  { outer }: Pick<Place, "outer">,
  change: (message: Members) => unknown,
  missing: (message: DescMessage) => Members = () => ({}),
): unknown {
  const [field, ...others] = outer;
  if (field === undefined) return change(request);
  const given = request[field.jsonName];
  const [first, ...rest] = field.fieldKind === "list" && Array.isArray(given) ? given : [given];
  const message = isObject(first) ? first : missing(nestedMessageOf(field) as DescMessage);
  const changed = withMessage(message, { outer: others }, change, missing);
  return withField(request, field, field.fieldKind === "list" ? [changed, ...rest] : changed);
}

/** A message with one field set. Other fields of the same oneof are removed. */
function withField(message: Members, { jsonName, oneof }: DescField, value: unknown): Members {
  const others = new Set(oneof?.fields.map((field) => field.jsonName));
  const kept = Object.entries(message).filter(([name]) => !others.has(name));
  return { ...Object.fromEntries(kept), [jsonName]: value };
}

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
