import type { OperationName } from "../support/operations.js";
import { nested } from "./meta.js";

/** Requests that each of these operations must refuse with invalid_input, naming the field `location`. */
export interface BadInput {
  readonly what: string;
  readonly operations: readonly OperationName[];
  readonly location: string;
  readonly requests: readonly Readonly<Record<string, unknown>>[];
}

const controlCharacters = ["\u0001", "\t", "\n", "\r", "\u001b", "\u001f", "\u007f", "\u0080", "\u0085", "\u009f"];

/** Objects that cannot be stored and returned unchanged over every protocol. */
const metas: Record<string, Record<string, unknown>[]> = {
  "NUL in a value": [{ a: "x\0y" }, { a: [{ b: ["\0"] }] }],
  "NUL in a key": [{ "x\0y": 1 }, { a: { b: [{ "\0": 1 }] } }],
  "33 levels": [nested(33), { list: [[nested(30)]] }],
};

const names = ["", " ", "keys read", "keys.", ".read", "keys..read", "*.read", "keys.*.read", "**", "keys*"];
names.push("ключ", "keys/read", "a\nb", "a\0b", "x".repeat(101));

const prefixes = ["", "seventeen_letters", "a-b", "a b", "ключ", "lk\n", "\0", "lk.live"];

/** Invalid lists of scopes or permissions. */
function badLists(field: string, operation: OperationName, badNames: readonly string[], more = {}): BadInput[] {
  const bad = (what: string, location: string, ...lists: string[][]): BadInput => {
    return { what, operations: [operation], location, requests: lists.map((list) => ({ ...more, [field]: list })) };
  };
  return [
    bad(`${field} with an invalid name`, `${field}[1]`, ...badNames.map((name) => ["keys.read", name])),
    bad(
      `more than 100 ${field}`,
      field,
      Array.from({ length: 101 }, (_, index) => `documents.read_${index}`),
    ),
    bad(`a duplicate in ${field}`, field, ["keys.read", "keys.create", "keys.read"]),
  ];
}

/** Invalid fields of requests that create something or refer to something. */
const creating: readonly BadInput[] = [
  ...Object.entries({
    "is empty": [""],
    "has 256 characters": ["x".repeat(256)],
    "has 256 characters beyond the basic plane": ["🗝".repeat(256)],
    "contains NUL": ["user\0", "\0"],
    "contains a control character": controlCharacters.flatMap((control) => [`a${control}b`, control]),
    "ends with a line break": ["user\n"],
  }).map(
    ([what, externalIds]): BadInput => ({
      what: `an externalId that ${what}`,
      operations: ["createIdentity", "createKey"],
      location: "externalId",
      requests: externalIds.map((externalId) => ({ externalId })),
    }),
  ),
  { what: "no externalId", operations: ["createIdentity"], location: "externalId", requests: [{}, { meta: {} }] },
  ...Object.entries(metas).map(
    ([what, values]): BadInput => ({
      what: `meta with ${what}`,
      operations: ["createIdentity", "createKey"],
      location: "meta",
      requests: values.map((meta) => ({ externalId: "user_1", meta })),
    }),
  ),
  ...badLists("scopes", "createKey", [...names, "keys:read"]),
  ...badLists("permissions", "createKey", names),
  ...badLists("scopes", "createRootKey", [...names, "keys:read"], { workspaceId: "ws_00000000000000000000000000" }),
  {
    what: "a prefix that is not 1 to 16 letters, digits and underscores",
    operations: ["createKey"],
    location: "prefix",
    requests: prefixes.map((prefix) => ({ prefix })),
  },
  {
    what: "an expiry in the past",
    operations: ["createKey"],
    location: "expires",
    requests: [{ expires: Date.UTC(2001, 0, 1) }, { expires: 0 }, { expires: -1 }],
  },
  {
    what: "a name that is empty, too long or contains NUL",
    operations: ["createKey", "createWorkspace"],
    location: "name",
    requests: [{ name: "" }, { name: "x".repeat(256) }, { name: "a\0" }],
  },
  { what: "no name", operations: ["createWorkspace"], location: "name", requests: [{}] },
  ...["identityId", "externalId", "identity"].map(
    (field): BadInput => ({
      what: `${field} that is empty or contains NUL`,
      operations: ["getIdentity", "updateIdentity", "deleteIdentity"],
      location: field,
      requests: [{ [field]: "" }, { [field]: "a\0b" }],
    }),
  ),
  {
    what: "an identityId that is empty or contains NUL",
    operations: ["createKey"],
    location: "identityId",
    requests: [{ identityId: "" }, { identityId: "id_\0" }],
  },
  {
    what: "a workspaceId that is empty or contains NUL",
    operations: ["getWorkspace", "enableWorkspace", "createRootKey"],
    location: "workspaceId",
    requests: [{}, { workspaceId: "" }, { workspaceId: "ws_\0" }],
  },
];

const keyId = "key_00000000000000000000000000";
const tooLong = "x".repeat(256);
const hash = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

/** updateKey refuses the same values as createKey, except an expiry in the past, which ends the key. */
const updating: readonly BadInput[] = [
  ...creating
    .filter(({ operations, location }) => operations.includes("createKey") && !["prefix", "expires"].includes(location))
    .map(({ requests, ...bad }): BadInput => {
      return { ...bad, operations: ["updateKey"], requests: requests.map((request) => ({ keyId, ...request })) };
    }),
  ...Object.entries(metas).map(
    ([what, values]): BadInput => ({
      what: `meta with ${what}`,
      operations: ["updateIdentity"],
      location: "meta",
      requests: values.map((meta) => ({ externalId: "user_1", meta })),
    }),
  ),
];

/** Invalid fields that every protocol can send. */
export const badInputs: readonly BadInput[] = [
  ...creating,
  ...updating,
  {
    what: "a keyId that is missing, empty, too long or contains NUL",
    operations: ["getKey", "updateKey", "deleteKey", "rerollKey"],
    location: "keyId",
    requests: [{}, { keyId: "" }, { keyId: tooLong }, { keyId: "key_\0" }],
  },
  {
    // Any other text is a secret that was presented, and is not found.
    what: "a key that is missing, empty or contains NUL",
    operations: ["verifyKey"],
    location: "key",
    requests: [{}, { key: "" }, { key: "lk_\0" }],
  },
  {
    what: "a key that is missing, empty, too long or contains NUL",
    operations: ["whoami"],
    location: "key",
    requests: [{}, { key: "" }, { key: "x".repeat(513) }, { key: "lk_\0" }],
  },
  {
    what: "an apiId that is missing, empty, too long or contains NUL",
    operations: ["getApi", "deleteApi"],
    location: "apiId",
    requests: [{}, { apiId: "" }, { apiId: tooLong }, { apiId: "api_\0" }],
  },
  {
    what: "an apiId that is empty, too long or contains NUL",
    operations: ["createKey", "listKeys"],
    location: "apiId",
    requests: [{ apiId: "" }, { apiId: tooLong }, { apiId: "api_\0" }],
  },
  ...(["role", "permission"] as const).map(
    (field): BadInput => ({
      what: `a ${field} that is missing, empty, too long or contains NUL`,
      operations: field === "role" ? ["getRole", "deleteRole"] : ["getPermission", "deletePermission"],
      location: field,
      requests: [{}, { [field]: "" }, { [field]: tooLong }, { [field]: "a\0" }],
    }),
  ),
  {
    what: "a search that is empty, too long or contains NUL",
    operations: ["listPermissions", "listRoles"],
    location: "search",
    requests: [{ search: "" }, { search: tooLong }, { search: "\0" }],
  },
  {
    what: "a name that is missing, empty, too long or contains NUL",
    operations: ["createApi", "createRole"],
    location: "name",
    requests: [{}, { name: "" }, { name: tooLong }, { name: "a\0" }],
  },
  {
    what: "a slug that is missing, too long, or not names joined by dots",
    operations: ["createPermission"],
    location: "slug",
    requests: [{}, ...[...names, "documents.*", "*", "x".repeat(101)].map((slug) => ({ slug }))].map((request) => ({
      name: "Read",
      ...request,
    })),
  },
  {
    what: "a description that is too long or contains NUL",
    operations: ["createRole"],
    location: "description",
    requests: [
      { name: "editor", description: "x".repeat(513) },
      { name: "editor", description: "\0" },
    ],
  },
  ...badLists("permissions", "createRole", names, { name: "editor" }),
  ...badLists("permissions", "setRolePermissions", names, { roleId: "editor" }),
  ...badLists("permissions", "addPermissions", names, { keyId }),
  ...badLists("permissions", "removePermissions", names, { keyId }),
  ...badLists("permissions", "setPermissions", names, { keyId }),
  ...(["addRoles", "setRoles", "removeRoles"] as const).map(
    (operation): BadInput => ({
      what: "more than 20 roles, or one of them twice",
      operations: [operation],
      location: "roles",
      requests: [Array.from({ length: 21 }, (_, index) => `role ${index}`), ["editor", "editor"]].map((roles) => ({
        keyId,
        roles,
      })),
    }),
  ),
  {
    what: "no permissions",
    operations: ["addPermissions", "removePermissions"],
    location: "permissions",
    requests: [{ keyId }, { keyId, permissions: [] }],
  },
  {
    what: "no roles",
    operations: ["addRoles", "removeRoles"],
    location: "roles",
    requests: [{ keyId }, { keyId, roles: [] }],
  },
  {
    what: "a hash that is not the base64 of 32 bytes",
    operations: ["migrateKeys"],
    location: "keys[0].hash",
    requests: ["", "abc", "A".repeat(44), `${"A".repeat(42)}B=`, `${hash.slice(0, 42)}\n=`].map((given) => ({
      migrationId: "m",
      keys: [{ hash: given }],
    })),
  },
  {
    what: "no keys, more than 100, or the same hash twice",
    operations: ["migrateKeys"],
    location: "keys",
    requests: [[], Array.from({ length: 101 }, () => ({ hash })), [{ hash }, { hash }]].map((keys) => ({
      migrationId: "m",
      keys,
    })),
  },
  {
    what: "a migrationId that is missing, empty, too long or contains NUL",
    operations: ["migrateKeys"],
    location: "migrationId",
    requests: [{}, { migrationId: "" }, { migrationId: tooLong }, { migrationId: "\0" }].map((request) => ({
      ...request,
      keys: [{ hash }],
    })),
  },
  {
    what: "a byteLength below 16 or above 255",
    operations: ["createKey"],
    location: "byteLength",
    requests: [{ byteLength: 15 }, { byteLength: 0 }, { byteLength: 256 }, { byteLength: -1 }],
  },
  { what: "`recoverable`", operations: ["createKey"], location: "recoverable", requests: [{ recoverable: true }] },
  { what: "`decrypt`", operations: ["listKeys"], location: "decrypt", requests: [{ decrypt: true }] },
  { what: "`decrypt`", operations: ["getKey"], location: "decrypt", requests: [{ keyId, decrypt: true }] },
  ...(["getKeyUsage", "getIdentityUsage"] as const).map((operation): BadInput => {
    const reference = operation === "getKeyUsage" ? { keyId } : { externalId: "user_1" };
    const at = Date.UTC(2030, 0);
    return {
      what: "a period that ends before it begins",
      operations: [operation],
      location: "period",
      requests: [
        { ...reference, period: { from: at, to: at, granularity: "day" } },
        { ...reference, period: { from: at, to: at - 1, granularity: "hour" } },
      ],
    };
  }),
  {
    what: "an unknown granularity",
    operations: ["getKeyUsage"],
    location: "period.granularity",
    requests: ["week", "", "HOUR"].map((granularity) => ({ keyId, period: { from: 0, to: 1, granularity } })),
  },
  {
    what: "a period without its beginning",
    operations: ["getKeyUsage"],
    location: "period.from",
    requests: [{ keyId, period: { to: 1, granularity: "hour" } }],
  },
  {
    what: "an externalId that is empty, too long or contains NUL",
    operations: ["listKeys"],
    location: "externalId",
    requests: [{ externalId: "" }, { externalId: tooLong }, { externalId: "\0" }],
  },
  {
    what: "a search that is empty, too long or contains NUL",
    operations: ["listIdentities"],
    location: "search",
    requests: [{ search: "" }, { search: tooLong }, { search: "\0" }],
  },
  ...["workspaceId", "type", "resourceId"].map(
    (field): BadInput => ({
      what: `a ${field} that is empty, too long or contains NUL`,
      operations: ["listAuditEvents"],
      location: field,
      requests: [{ [field]: "" }, { [field]: tooLong }, { [field]: "a\0" }],
    }),
  ),
];
