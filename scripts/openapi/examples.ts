import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { nestedMessageOf } from "../../src/rpc/message-limits.js";
import type { Json, JsonObject } from "./json.js";

/** Examples by field name. If a name has several meanings, the key includes the message. */
const examples: Readonly<Record<string, Json>> = {
  actor: "operator",
  "CreateApiResponse.apiId": "api_01jd9x0k7qe5p9v2c4m8n1t6ra",
  "DeleteApiRequest.apiId": "api_01jd9x0k7qe5p9v2c4m8n1t6ra",
  "GetApiRequest.apiId": "api_01jd9x0k7qe5p9v2c4m8n1t6ra",
  amount: 1000,
  at: 1794708184091,
  autoApply: true,
  cost: 1,
  createdAt: 1794708184091,
  cursor: "eyJsIjoia2V5cyJ9",
  disabledAt: 1794708184091,
  disabledNote: "invoice 1207",
  duration: 60_000,
  enabled: true,
  eventId: "evt_01jd9x2m5tfj8s4r6w0y3z1b9e",
  expiration: 60_000,
  expires: 4102444800000,
  externalId: "user_42",
  from: 1794700000000,
  granularity: "hour",
  hash: "6Zf0rVs3mCqkGm3wBMFyGNrJyAzU5Qm2CXcYH7kNpa8=",
  hasMore: true,
  identifier: "user_42",
  identity: "user_42",
  identityId: "id_01jd9x0k7qe5p9v2c4m8n1t6ra",
  interval: "monthly",
  key: "lk_7Hq2TheRestIsShownOnceAndNeverAgain",
  keyId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha",
  lastUsedAt: 1794708190000,
  limit: 10,
  meta: { plan: "pro" },
  migrationId: "from-unkey",
  name: "build server",
  "RateLimitCheck.name": "requests",
  "RateLimitSettings.name": "requests",
  "CreateApiRequest.name": "payments",
  "CreatePermissionRequest.name": "Read documents",
  "CreateRoleRequest.name": "editor",
  namespace: "email.send",
  note: "invoice 1207",
  operation: "increment",
  overrideId: "ovr_01jd9x2m5tfj8s4r6w0y3z1b9e",
  permission: "documents.read",
  permissions: ["documents.read"],
  "VerifyKeyRequest.permissions": "documents.read AND (documents.write OR admin)",
  prefix: "acme",
  reason: "UNPAID_BILLING",
  refillDay: 1,
  remaining: 1000,
  requestId: "req_01jd9x2m5te4btvz7p3k8n6qwc",
  resourceId: "key_01jd9wzr3xfg2tq5d0v8m1c7ha",
  role: "editor",
  "AddRolesRequest.roles": ["editor"],
  "RemoveRolesRequest.roles": ["editor"],
  "SetRolesRequest.roles": ["editor"],
  roleId: "role_01jd9x0k7qe5p9v2c4m8n1t6ra",
  scopes: ["keys.verify"],
  search: "user",
  since: 1794700000000,
  slug: "documents.read",
  start: "lk_7Hq2",
  tag: "source=web",
  tags: ["source=web"],
  to: 1794780000000,
  type: "key.create",
  until: 1794800000000,
  updatedAt: 1794708184091,
  valid: true,
  "Usage.valid": 120,
  value: 100,
  workspaceId: "ws_01jd9wzr3wf8vbk4n2s6y0e9tj",
};

/** An example of a field's value; undefined if there is none. A name alone never stands for a message. */
export function exampleOf(field: DescField): Json | undefined {
  const { parent, jsonName } = field;
  const named = nestedMessageOf(field) === undefined ? examples[jsonName] : undefined;
  return examples[`${parent?.name}.${jsonName}`] ?? named;
}

/** A request that can be sent unchanged: of a oneof only the `external_id`, and no cursor of another list. */
export function exampleRequest({ members }: DescMessage, isReadable: (field: DescField) => boolean): JsonObject {
  const fields = members.flatMap((member) =>
    member.kind === "oneof" ? member.fields.filter(({ name }) => name === "external_id") : [member],
  );
  return Object.fromEntries(
    fields
      .filter((field) => isReadable(field) && field.name !== "cursor")
      .map((field) => [field.jsonName, exampleInRequest(field)] as const)
      .filter(([, example]) => example !== undefined),
  );
}

/** An example of a field of a request. That of a message has its members with examples. */
export function exampleInRequest(field: DescField): Json | undefined {
  const message = nestedMessageOf(field);
  if (message === undefined || exampleOf(field) !== undefined) return exampleOf(field);
  const example = exampleRequest(message, () => true);
  if (Object.keys(example).length === 0) return undefined;
  return field.fieldKind === "list" ? [example] : example;
}
