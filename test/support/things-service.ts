// A service that exists only in tests: its requests have the shapes that the core supports and that few RPCs have.
import { createFileRegistry, createRegistry, type DescMessage, fromJson, type JsonObject } from "@bufbuild/protobuf";
import {
  FieldMaskSchema,
  FileDescriptorProtoSchema,
  file_google_protobuf_field_mask,
  file_google_protobuf_struct,
  file_google_protobuf_timestamp,
  StructSchema,
  TimestampSchema,
} from "@bufbuild/protobuf/wkt";
import { file_buf_validate_validate } from "../../gen/buf/validate/validate_pb.js";
import { file_google_api_annotations } from "../../gen/google/api/annotations_pb.js";
import { file_latchkey_v1_access } from "../../gen/latchkey/v1/access_pb.js";

const files = [
  file_buf_validate_validate,
  file_google_api_annotations,
  file_google_protobuf_field_mask,
  file_google_protobuf_struct,
  file_google_protobuf_timestamp,
  file_latchkey_v1_access,
];
const packageName = "latchkey.test.v1";

type Field = JsonObject;

function field(name: string, type: JsonObject, rules: JsonObject = {}): Field {
  const jsonName = name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  return { name, jsonName, label: "LABEL_OPTIONAL", ...type, options: { "[buf.validate.field]": rules } };
}

const text = (name: string, rules: JsonObject = { maxLen: 50 }) =>
  field(name, { type: "TYPE_STRING" }, { string: rules });
const int64 = (name: string, rules: JsonObject) => field(name, { type: "TYPE_INT64" }, { int64: rules });
const int32 = (name: string, rules: JsonObject) => field(name, { type: "TYPE_INT32" }, { int32: rules });
const bool = (name: string) => field(name, { type: "TYPE_BOOL" });
const nested = (name: string, typeName: string) =>
  field(name, { type: "TYPE_MESSAGE", typeName: `.${packageName}.${typeName}` });
const wellKnown = (name: string, { typeName }: DescMessage, rules?: JsonObject) =>
  field(name, { type: "TYPE_MESSAGE", typeName: `.${typeName}` }, rules);
const optional = (given: Field): Field => ({ ...given, proto3Optional: true });

/** A list, with the given rules as those of its items. */
function list(given: Field, repeated: JsonObject): Field {
  const items = (given["options"] as JsonObject)["[buf.validate.field]"] as JsonObject;
  const rules = { repeated: { ...repeated, ...(Object.keys(items).length > 0 && { items }) } };
  return { ...given, label: "LABEL_REPEATED", options: { "[buf.validate.field]": rules } };
}

/** A message, whose fields are numbered from 1. Each optional field is in a oneof of its own, as protoc declares it. */
function message(name: string, ...fields: readonly Field[]): JsonObject {
  const optionalFields = fields.filter((each) => each["proto3Optional"]);
  return {
    name,
    field: fields.map((each, index) => ({
      ...each,
      number: index + 1,
      ...(each["proto3Optional"] && { oneofIndex: optionalFields.indexOf(each) }),
    })),
    oneofDecl: optionalFields.map((each) => ({ name: `_${each["name"]}` })),
  };
}

function rpc(name: string, inputType: string, path: string, body: string): JsonObject {
  const types = { inputType: `.${packageName}.${inputType}`, outputType: `.${packageName}.Thing` };
  const options = { "[google.api.http]": { post: path, body }, "[latchkey.v1.access]": { scope: "things.change" } };
  return { name, ...types, options };
}

const file = fromJson(
  FileDescriptorProtoSchema,
  {
    name: "latchkey/test/v1/things_service.proto",
    package: packageName,
    syntax: "proto3",
    dependency: files.map(({ proto }) => proto.name),
    messageType: [
      message(
        "Refill",
        text("interval", { in: ["daily", "monthly"] }),
        int64("amount", { gte: "1", lte: "1000" }),
        optional(int32("refill_day", { gte: 1, lte: 31 })),
      ),
      message(
        "Credits",
        optional(int64("remaining", { gte: "0", lte: "1000000" })),
        optional(nested("refill", "Refill")),
      ),
      message(
        "Limit",
        text("name", { minLen: 1, maxLen: 20 }),
        int64("limit", { gt: "0", lte: "1000000" }),
        optional(bool("auto_apply")),
        list(text("tags", { minLen: 1, maxLen: 10 }), { maxItems: 3 }),
        optional(wellKnown("meta", StructSchema)),
        optional(wellKnown("until", TimestampSchema)),
      ),
      message(
        "UpdateThingRequest",
        text("thing_id", { minLen: 1, maxLen: 50 }),
        optional(text("name", { minLen: 1, maxLen: 50 })),
        optional(nested("credits", "Credits")),
        list(nested("limits", "Limit"), { maxItems: 5 }),
        optional(wellKnown("meta", StructSchema)),
        wellKnown("update_mask", FieldMaskSchema, {
          fieldMask: { in: ["name", "credits", "credits.remaining", "credits.refill", "limits", "meta"] },
        }),
      ),
      message("ImportThingsRequest", list(nested("things", "ImportedThing"), { minItems: 1, maxItems: 100 })),
      message(
        "ImportedThing",
        text("hash", { minLen: 1, maxLen: 50 }),
        list(text("permissions", { minLen: 1, maxLen: 100 }), { maxItems: 100 }),
        list(nested("limits", "Limit"), { maxItems: 50 }),
        optional(wellKnown("meta", StructSchema)),
      ),
      message("CheckLimitsRequest", list(nested("limits", "Limit"), { minItems: 1, maxItems: 50 })),
      message("Thing", text("thing_id"), nested("credits", "Credits"), list(nested("limits", "Limit"), {})),
    ],
    service: [
      {
        name: "ThingsService",
        method: [
          rpc("UpdateThing", "UpdateThingRequest", "/v2/things.updateThing", "*"),
          rpc("ImportThings", "ImportThingsRequest", "/v2/things.importThings", "*"),
          rpc("CheckLimits", "CheckLimitsRequest", "/v2/things.checkLimits", "limits"),
        ],
      },
    ],
  },
  { registry: createRegistry(...files) },
);

const registry = createFileRegistry(file, (name) => files.find(({ proto }) => proto.name === name));

function schemaOf(name: string): DescMessage {
  const schema = registry.getMessage(`${packageName}.${name}`);
  if (schema === undefined) throw new Error(`there is no message ${name}`);
  return schema;
}

/** An update with messages and lists of messages, whose mask can name members of `credits`. */
export const UpdateThingRequestSchema = schemaOf("UpdateThingRequest");

/** A list of messages, each of which has lists, messages and a Struct. */
export const ImportThingsRequestSchema = schemaOf("ImportThingsRequest");

/** The body of its HTTP binding is the value of its only field, a list. */
export const CheckLimitsRequestSchema = schemaOf("CheckLimitsRequest");

/** A message of a response that also occurs in requests. */
export const LimitSchema = schemaOf("Limit");

const service = registry.getService(`${packageName}.ThingsService`);
if (service === undefined) throw new Error("there is no ThingsService");

/** The service with these requests. It has no handlers. */
export const ThingsService = service;
