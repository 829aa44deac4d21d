import type { DescField, DescMessage } from "@bufbuild/protobuf";
import type { Json, JsonObject } from "./json.js";

/** Examples by field name. If a name has several meanings, the key includes the message. */
const examples: Readonly<Record<string, Json>> = {
  actor: "operator",
  at: 1794708184091,
  createdAt: 1794708184091,
  cursor: "eyJsIjoia2V5cyJ9",
  disabledAt: 1794708184091,
  disabledNote: "invoice 1207",
  enabled: true,
  eventId: "evt_01jd9x2m5tfj8s4r6w0y3z1b9e",
  expiration: 60_000,
  expires: 4102444800000,
  externalId: "user_42",
  hasMore: true,
  identity: "user_42",
  identityId: "id_01jd9x0k7qe5p9v2c4m8n1t6ra",
  key: "lk_7Hq2TheRestIsShownOnceAndNeverAgain",
  keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha",
  lastUsedAt: 1794708190000,
  limit: 10,
  meta: { plan: "pro" },
  name: "build server",
  note: "invoice 1207",
  permissions: ["documents.read"],
  "VerifyKeyRequest.permissions": "documents.read AND (documents.write OR admin)",
  prefix: "acme",
  reason: "UNPAID_BILLING",
  requestId: "req_01jd9x2m5te4btvz7p3k8n6qwc",
  resourceId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha",
  scopes: ["keys.verify"],
  search: "user",
  since: 1794700000000,
  start: "lk_7Hq2",
  type: "key.create",
  until: 1794800000000,
  updatedAt: 1794708184091,
  valid: true,
  workspaceId: "ws_01jd9wzr3wf8vbk4n2s6y0e9tj",
};

/** An example of a field's value; undefined if there is none. */
export function exampleOf({ parent, jsonName }: DescField): Json | undefined {
  return examples[`${parent?.name}.${jsonName}`] ?? examples[jsonName];
}

/** A request that can be sent unchanged: of a oneof only the `external_id`, and no cursor of another list. */
export function exampleRequest({ members }: DescMessage, isReadable: (field: DescField) => boolean): JsonObject {
  const fields = members.flatMap((member) =>
    member.kind === "oneof" ? member.fields.filter(({ name }) => name === "external_id") : [member],
  );
  return Object.fromEntries(
    fields
      .filter((field) => isReadable(field) && field.name !== "cursor" && exampleOf(field) !== undefined)
      .map((field) => [field.jsonName, exampleOf(field)]),
  );
}
