import { type DescMessage, getOption, hasOption, isFieldSet, type MessageShape } from "@bufbuild/protobuf";
import { type FieldMask, FieldMaskSchema } from "@bufbuild/protobuf/wkt";
import { field as fieldRules } from "../gen/buf/validate/validate_pb.js";

/** The field of a message that says which others to change, and which those can be; undefined if it has none. */
export function updateMaskOf(schema: DescMessage) {
  const mask = schema.fields.find(({ message }) => message?.typeName === FieldMaskSchema.typeName);
  if (mask === undefined) return undefined;
  const type = hasOption(mask, fieldRules) ? getOption(mask, fieldRules).type : undefined;
  if (type?.case !== "fieldMask") throw new Error(`${mask}: an update mask says by a rule which fields it can name`);
  return { field: mask, changeable: new Set(type.value.in) };
}

/** The fields that a request changes: those that its mask names or, without a mask, those that it sets. */
export function changedFields<Schema extends DescMessage>(
  schema: Schema,
  request: MessageShape<Schema> & { updateMask?: FieldMask },
): Set<string> {
  if (request.updateMask !== undefined) return new Set(request.updateMask.paths);
  const changeable = updateMaskOf(schema)?.changeable ?? new Set();
  const set = schema.fields.filter((field) => changeable.has(field.name) && isFieldSet(request, field));
  return new Set(set.map((field) => field.name));
}
