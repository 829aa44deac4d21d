import {
  type DescField,
  type DescMessage,
  getOption,
  hasOption,
  isFieldSet,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import { type FieldMask, FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { field as fieldRules } from "../../gen/buf/validate/validate_pb.js";
import { invalidInput } from "../errors.js";

/** The update mask field of a message, and the fields that it may name. */
export interface UpdateMask {
  readonly field: DescField;
  /** The paths that it may name: fields, and members of fields that are messages, such as `credits.remaining`. */
  readonly changeable: ReadonlySet<string>;
  /** The members of each field whose members can be changed one by one, by the name of the field. */
  readonly members: ReadonlyMap<string, readonly DescField[]>;
}

/** Reading an option costs 50 µs, so the option of each message is read once. */
const updateMasks = new WeakMap<DescMessage, UpdateMask | undefined>();

/** Undefined if the message has no update mask. */
export function updateMaskOf(schema: DescMessage): UpdateMask | undefined {
  if (!updateMasks.has(schema)) updateMasks.set(schema, readUpdateMask(schema));
  return updateMasks.get(schema);
}

function readUpdateMask(schema: DescMessage): UpdateMask | undefined {
  const mask = schema.fields.find(({ message }) => message?.typeName === FieldMaskSchema.typeName);
  if (mask === undefined) return undefined;
  const type = hasOption(mask, fieldRules) ? getOption(mask, fieldRules).type : undefined;
  if (type?.case !== "fieldMask")
    throw new Error(`${mask}: an update mask needs a rule that lists the fields it can name`);
  const changeable = new Set(type.value.in);
  const members = new Map<string, readonly DescField[]>();
  for (const { name, fieldKind, oneof, message } of schema.fields) {
    const isListed = [...changeable].some((path) => path.startsWith(`${name}.`));
    if (isListed && fieldKind === "message" && oneof === undefined) members.set(name, message.fields);
  }
  const possible = schema.fields.flatMap(({ name }) => [name, ...memberPaths(name, members.get(name))]);
  const unknown = [...changeable].find((path) => !possible.includes(path));
  if (unknown !== undefined) throw new Error(`${mask}: there is no field ${unknown}`);
  // A member that is not listed could be sent, and would be ignored.
  const unlisted = possible.find((path) => path.includes(".") && !changeable.has(path));
  if (unlisted !== undefined) throw new Error(`${mask}: the rule must also list ${unlisted}`);
  return { field: mask, changeable, members };
}

function memberPaths(name: string, members: readonly DescField[] = []): string[] {
  return members.map((member) => `${name}.${member.name}`);
}

/**
 * The fields that a request changes: those that its mask names or, without a mask, those that it sets. If the members
 * of a field can be changed one by one, the result has the path of each: `credits.remaining`. The path `credits` then
 * means that the field is replaced as a whole, or cleared. Deeper paths are refused.
 */
export function changedFields<Schema extends DescMessage>(
  schema: Schema,
  request: MessageShape<Schema> & { updateMask?: FieldMask },
): Set<string> {
  const mask = updateMaskOf(schema);
  if (mask === undefined) return new Set();
  const { changeable, members } = mask;
  const named = new Set(request.updateMask?.paths);
  if ([...named].some((path) => !changeable.has(path))) {
    throw invalidInput([{ location: "updateMask", message: `can name only ${[...changeable].join(", ")}` }]);
  }
  // A field that is replaced as a whole includes its members.
  if (named.size > 0) return new Set([...named].filter((path) => !named.has(parentOf(path))));
  const paths = schema.fields
    .filter((field) => isFieldSet(request, field))
    .flatMap((field) => {
      const value = (request as Record<string, unknown>)[field.localName] as Message;
      const set = members.get(field.name)?.filter((member) => isFieldSet(value, member));
      return set === undefined ? field.name : memberPaths(field.name, set);
    });
  return new Set(paths.filter((path) => changeable.has(path)));
}

/** `credits` for `credits.remaining`; an empty string for a path without a parent. */
function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.indexOf(".")));
}
