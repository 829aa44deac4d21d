import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { maxItemsOf, nestedMessageOf } from "../../rpc/message-limits.js";

/** The part of a descriptor that the scan of a body needs: which fields are messages, and how many items lists have. */
export interface Shape {
  /** The fields of a message that are messages or lists of messages. All others are single values. */
  readonly nested: ReadonlyMap<string, Shape>;
  /** The messages of a list. Undefined if this is a message itself. */
  readonly items?: Shape;
  readonly maxItems?: number;
}

const shapes = new WeakMap<DescMessage, Shape>();

/** The shape of a message, compiled once. */
export function shapeOfMessage(schema: DescMessage): Shape {
  const known = shapes.get(schema);
  if (known !== undefined) return known;
  const nested = schema.fields.flatMap((field) => {
    const shape = shapeOfField(field);
    // Connect also accepts the names of the proto file.
    return shape ? ([[field.jsonName, shape], [field.name, shape]] as const) : []; // biome-ignore format: one line
  });
  const shape = { nested: new Map(nested) };
  shapes.set(schema, shape);
  return shape;
}

/** The shape of a field; undefined if it is a single value. */
export function shapeOfField(field: DescField): Shape | undefined {
  const message = nestedMessageOf(field);
  if (message === undefined) return undefined;
  const maxItems = maxItemsOf(field);
  const items = shapeOfMessage(message);
  return maxItems === undefined ? items : { nested: new Map(), items, maxItems };
}
