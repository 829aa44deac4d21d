// Prints a file descriptor as .proto source. Written by hand, because no JavaScript library does it. It covers the
// features that buf/validate/validate.proto uses and fails on all others.
import { getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { predefined } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";

/** The source of a proto2 file without services. */
export function printFile({ proto, messages, enums, extensions }) {
  if (proto.syntax !== "" || proto.service.length > 0) throw new Error("expected a proto2 file without services");
  const { javaPackage, javaOuterClassname, javaMultipleFiles, goPackage } = proto.options;
  const byExtendee = groupByExtendee(extensions);
  return [
    `// Printed from the descriptor in @bufbuild/protovalidate. Copyright Buf Technologies, Inc., Apache License 2.0.`,
    `syntax = "proto2";`,
    `package ${proto.package};`,
    ...proto.dependency.map((path) => `import ${quote(path)};`),
    `option go_package = ${quote(goPackage)};`,
    `option java_multiple_files = ${javaMultipleFiles};`,
    `option java_outer_classname = ${quote(javaOuterClassname)};`,
    `option java_package = ${quote(javaPackage)};`,
    ...[...byExtendee].map(([extendee, fields]) => block(`extend .${extendee.typeName}`, fields.map(printField))),
    ...messages.map(printMessage),
    ...enums.map(printEnum),
    "",
  ].join("\n");
}

function groupByExtendee(extensions) {
  const groups = new Map();
  for (const extension of extensions) {
    groups.set(extension.extendee, [...(groups.get(extension.extendee) ?? []), extension]);
  }
  return groups;
}

function printMessage(message) {
  if (message.nestedMessages.length + message.nestedEnums.length + message.nestedExtensions.length > 0) {
    throw new Error(`${message.typeName}: nested types are not printed`);
  }
  const { reservedRange, reservedName, extensionRange } = message.proto;
  return block(`message ${message.name}`, [
    ...reservedRange.map(({ start, end }) => `reserved ${range(start, end)};`),
    ...reservedName.map((name) => `reserved ${quote(name)};`),
    ...extensionRange.map(({ start, end }) => `extensions ${range(start, end)};`),
    ...message.members.map((member) =>
      member.kind === "oneof" ? block(`oneof ${member.name}`, member.fields.map(printField)) : printField(member),
    ),
  ]);
}

function printField(field) {
  const label = field.fieldKind === "list" ? "repeated " : field.oneof === undefined ? "optional " : "";
  const options = hasOption(field, predefined)
    ? ` [(predefined) = ${printValue(predefined.message, getOption(field, predefined))}]`
    : "";
  return `${label}${typeName(field)} ${field.name} = ${field.number}${options};`;
}

function typeName(field) {
  if (field.message !== undefined) return `.${field.message.typeName}`;
  if (field.enum !== undefined) return `.${field.enum.typeName}`;
  return ScalarType[field.scalar].toLowerCase();
}

/** An option's value in protobuf text format. */
function printValue(schema, message) {
  const value = reflect(schema, message);
  const entries = schema.fields
    .filter((field) => value.isSet(field))
    .flatMap((field) =>
      (field.fieldKind === "list" ? [...value.get(field)] : [value.get(field)]).map((item) => [field, item]),
    );
  return `{${entries.map(([field, item]) => `${field.name}: ${printItem(field, item)}`).join(", ")}}`;
}

function printItem(field, item) {
  if (field.message !== undefined) return printValue(field.message, item.message);
  if (field.scalar === ScalarType.STRING) return quote(item);
  throw new Error(`${field.name}: only strings and messages are printed`);
}

function printEnum(descriptor) {
  return block(`enum ${descriptor.name}`, [
    ...descriptor.proto.reservedRange.map(({ start, end }) => `reserved ${range(start, end + 1)};`),
    ...descriptor.proto.reservedName.map((name) => `reserved ${quote(name)};`),
    ...descriptor.values.map(({ name, number }) => `${name} = ${number};`),
  ]);
}

function block(header, lines) {
  return `${header} {\n${lines.join("\n").replace(/^/gm, "  ")}\n}`;
}

/** Descriptor ranges exclude their end; source ranges include it. */
function range(start, end) {
  const last = end - 1;
  if (last === start) return `${start}`;
  return `${start} to ${last === 536870911 ? "max" : last}`;
}

function quote(text) {
  return JSON.stringify(text);
}
