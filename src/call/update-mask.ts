import {
  type DescField,
  type DescMessage,
  getOption,
  hasOption,
  isFieldSet,
  type MessageShape,
} from "@bufbuild/protobuf";
import { type FieldMask, FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { field as fieldRules } from "../../gen/buf/validate/validate_pb.js";
import { invalidInput } from "../errors.js";

/** The update mask field of a message, and the fields that it may name. */
interface UpdateMask {
  readonly field: DescField;
  readonly changeable: ReadonlySet<string>;
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
  return { field: mask, changeable: new Set(type.value.in) };
}

/**
 * The fields that a request changes: those that its mask names or, without a mask, those that it sets. A path into a
 * field is refused, because fields are changed as a whole.
 */
export function changedFields<Schema extends DescMessage>(
  schema: Schema,
  request: MessageShape<Schema> & { updateMask?: FieldMask },
): Set<string> {
  const changeable = updateMaskOf(schema)?.changeable ?? new Set();
  const named = request.updateMask?.paths ?? [];
  if (named.some((path) => !changeable.has(path))) {
    throw invalidInput([{ location: "updateMask", message: `can name only ${[...changeable].join(", ")}` }]);
  }
  if (named.length > 0) return new Set(named);
  const set = schema.fields.filter((field) => changeable.has(field.name) && isFieldSet(request, field));
  return new Set(set.map((field) => field.name));
}
