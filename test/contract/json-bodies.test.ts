import { type DescMessage, fromBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { BadRequestSchema, ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { readResponse } from "../support/clients/http.js";
import { requestIdForm } from "../support/clients/outcome.js";
import { operatorKey } from "../support/harness.js";
import { type OperationName, operationOf, pathOf } from "../support/operations.js";
import { openContract } from "./cases.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();

/**
 * JSON texts that no message can express, and the fields that must be named. The last column: also sent over Connect.
 */
const bodies: readonly [operation: OperationName, body: string, locations: string[], overConnect: boolean][] = [
  ["createIdentity", `{"externalId": "user_1"`, ["body"], true],
  ["createIdentity", `user_1`, ["body"], false],
  ["createIdentity", `[]`, ["body"], false],
  ["createIdentity", `null`, ["body"], false],
  ["createIdentity", `"user_1"`, ["body"], false],
  ["createIdentity", `{"externalId":"user_1"} {}`, ["body"], false],
  ["createIdentity", ``, ["externalId"], false],
  ["createIdentity", `{"externalId":5}`, ["externalId"], true],
  ["createIdentity", `{"externalId":true}`, ["externalId"], false],
  ["createIdentity", `{"externalId":["user_1"]}`, ["externalId"], false],
  ["createIdentity", `{"externalId":{"a":1}}`, ["externalId"], false],
  ["createIdentity", String.raw`{"externalId":"\ud800"}`, ["externalId"], true],
  ["createIdentity", String.raw`{"externalId":"a","\ud800":1}`, ["\ufffd"], true],
  ["createIdentity", String.raw`{"externalId":"a\udc00b"}`, ["externalId"], false],
  ["createIdentity", `{"externalId":"user_1","meta":[]}`, ["meta"], true],
  ["createIdentity", `{"externalId":"user_1","meta":[{"a":1}]}`, ["meta"], false],
  ["createIdentity", `{"externalId":"user_1","meta":"text"}`, ["meta"], false],
  ["createIdentity", `{"externalId":"user_1","meta":1}`, ["meta"], false],
  ["createIdentity", `{"externalId":"user_1","meta":true}`, ["meta"], false],
  ["createIdentity", `{"externalId":"user_1","meta":{"a":1e999}}`, ["meta"], true],
  ["createIdentity", `{"externalId":"user_1","meta":{"a":12345678901234567890}}`, ["meta"], true],
  ["createIdentity", `{"meta":{"a":[1,{"b":-9007199254740993}]},"externalId":"user_1"}`, ["meta"], false],
  ["createIdentity", `{"externalId":"user_1","meta":{"a":1e-400}}`, ["meta"], true],
  ["createIdentity", `{"externalId":"user_1","meta":{"a":-0.${"0".repeat(400)}1}}`, ["meta"], false],
  ["updateIdentity", `{"externalId":"user_1","meta":{"a":123456789012345678}}`, ["meta"], false],
  // 2 to the power of 64: a double represents it, but JSON prints only its first 17 digits.
  ["createIdentity", `{"externalId":"user_1","meta":{"a":18446744073709551616}}`, ["meta"], false],
  ["createKey", `{"meta":{"a":9007199254740993}}`, ["meta"], false],
  ["updateKey", `{"keyId":"key","meta":{"a":{"b":9007199254740993}}}`, ["meta"], true],
  ["createIdentity", String.raw`{"externalId":"user_1","meta":{"a":["\ud83d"]}}`, ["meta"], false],
  ["createIdentity", String.raw`{"externalId":"user_1","meta":{"\udd11":1}}`, ["meta"], false],
  ["createIdentity", `{"externalId":"user_1","nonsense":1}`, ["nonsense"], true],
  ["createIdentity", `{"externalId":"user_1","nonsense":null}`, ["nonsense"], false],
  ["createIdentity", `{"externalId":"user_1","ExternalId":"user_1"}`, ["ExternalId"], false],
  ["createIdentity", `{"external_id":"user_1","externalId":"user_1"}`, ["external_id"], false],
  ["createIdentity", `{"externalId":"user_1","__proto__":{"a":1}}`, ["__proto__"], false],
  ["createIdentity", `{"externalId":"user_1","constructor":1}`, ["constructor"], false],
  ["createIdentity", `{"externalId":5,"meta":[],"nonsense":1}`, ["externalId", "meta", "nonsense"], false],
  ["createKey", `{"permissions":"keys.read"}`, ["permissions"], false],
  ["createKey", `{"permissions":{"0":"keys.read"}}`, ["permissions"], false],
  ["createKey", `{"permissions":["keys.read",1]}`, ["permissions[1]"], true],
  ["createKey", `{"permissions":[null]}`, ["permissions[0]"], false],
  ["createKey", `{"enabled":"true"}`, ["enabled"], false],
  ["createKey", `{"enabled":1}`, ["enabled"], false],
  ["createKey", `{"expires":"2099-01-01T00:00:00Z"}`, ["expires"], false],
  ["createKey", `{"expires":4070908800000.5}`, ["expires"], false],
  ["createKey", `{"expires":253402300800000}`, ["expires"], false],
  ["createKey", `{"expires":9007199254740991}`, ["expires"], false],
  ["createKey", `{"expires":1e300}`, ["expires"], false],
  ["createKey", `{"expires":true}`, ["expires"], false],
  ["createKey", `{"name":1,"prefix":2}`, ["name", "prefix"], false],
  ["createKey", `{"identityId":"a","externalId":"b"}`, ["externalId"], false],
  ["getIdentity", `{"identityId":"a","identity":"a"}`, ["identity"], false],
  ["listKeys", `{"limit":"5"}`, ["limit"], false],
  ["listKeys", `{"limit":1.5}`, ["limit"], true],
  ["listKeys", `{"limit":4294967297}`, ["limit"], false],
  ["listKeys", `{"cursor":5}`, ["cursor"], false],
  ["listKeys", `{"offset":5}`, ["offset"], false],
  ["disableWorkspace", `{"workspaceId":"ws","reason":"BECAUSE"}`, ["reason"], true],
  ["disableWorkspace", `{"workspaceId":"ws","reason":"unpaid_billing"}`, ["reason"], false],
  ["disableWorkspace", `{"workspaceId":"ws","reason":"DISABLED_REASON_UNPAID_BILLING"}`, ["reason"], false],
  ["disableWorkspace", `{"workspaceId":"ws","reason":"UNSPECIFIED"}`, ["reason"], false],
  ["disableWorkspace", `{"workspaceId":"ws","reason":1}`, ["reason"], false],
];

describe("HTTP/JSON: an invalid body is refused and the field named, and nothing is stored", () => {
  test.each(bodies)("%s %s", async (operation, body, locations) => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const outcome = await readResponse(await post(operationOf(operation).routes[0][1], scene, operation, body), false);
    if (outcome.ok) return expect.fail("the call succeeded");
    expect(outcome.code).toBe("application/invalid_input");
    expect(outcome.fields?.map(({ location }) => location)).toEqual(locations);
    await expectNothingStored(scene);
  });

  test("a number that cannot be represented exactly is refused, and must be sent as a string", async () => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const body = `{"externalId":"user_1","meta":{"a":12345678901234567890}}`;
    const outcome = await readResponse(
      await post("/v2/identities.createIdentity", scene, "createIdentity", body),
      false,
    );
    const message = "has a number that cannot be represented exactly: send it as a string";
    expect(outcome).toMatchObject({ fields: [{ location: "meta", message }] });
  });

  test("bytes that are not UTF-8 are refused", async () => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const body = Buffer.concat([Buffer.from(`{"externalId":"`), Buffer.of(0xff, 0xfe), Buffer.from(`"}`)]);
    const outcome = await readResponse(
      await post("/v2/identities.createIdentity", scene, "createIdentity", body),
      false,
    );
    expect(outcome).toMatchObject({ code: "application/invalid_input", fields: [{ location: "body" }] });
    await expectNothingStored(scene);
  });

  test("a meta of fifty thousand levels is refused, and the server keeps serving", async () => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    const body = `{"externalId":"user_1","meta":{"a":${"[".repeat(5e4)}${"]".repeat(5e4)}}}`;
    const outcome = await readResponse(
      await post("/v2/identities.createIdentity", scene, "createIdentity", body),
      false,
    );
    expect(outcome).toMatchObject({ code: "application/invalid_input", fields: [{ location: "meta" }] });
    await expectNothingStored(scene);
  });

  test.each([
    ["limit=abc", "limit"],
    ["limit=", "limit"],
    ["limit=1.5", "limit"],
    ["limit=0", "limit"],
    ["limit=101", "limit"],
    ["limit=1&limit=2", "limit"],
    ["cursor=", "cursor"],
    ["cursor=a&cursor=b", "cursor"],
    ["cursor=%00", "cursor"],
    ["nonsense=1", "nonsense"],
    ["Limit=1", "Limit"],
  ])("GET /v1/identities.listIdentities?%s names %s", async (query, location) => {
    const { home } = await openScene(contract.protocols.http, contract.clock);
    const headers = { Authorization: `Bearer ${home.key}` };
    const response = await fetch(`${contract.app.httpUrl}/v1/identities.listIdentities?${query}`, { headers });
    expect(await readResponse(response, true)).toMatchObject({
      code: "application/invalid_input",
      fields: [{ location }],
    });
  });
});

describe("numbers in meta that a double represents, or rounds as every JSON parser does, are accepted", () => {
  // The last of the large ones is how JSON prints 123456789012345683968: a number that was read can be sent again.
  const large = ["9007199254740992", "-9007199254740994", "100000000000000000000", "123456789012345680000"];
  const others = [
    "1e22",
    "1000000000000000000000000",
    "0.1",
    "3.14159265358979323846",
    "-0",
    "0e-999",
    "0.000",
    "5e-324",
  ];

  test.each([...large, ...others])("%s", async (number) => {
    const scene = await openScene(contract.protocols.http, contract.clock);
    for (const [path, externalId] of [
      ["/v2/identities.createIdentity", "user_1"],
      ["/latchkey.v1.IdentitiesService/CreateIdentity", "user_2"],
    ] as const) {
      const body = `{"externalId":"${externalId}","meta":{"a":"1e-400 12345678901234567890","b":[${number},1]}}`;
      expect((await post(path, scene, "createIdentity", body)).status).toBe(200);
      const { meta } = await scene.ok("getIdentity", scene.home.key, { externalId });
      expect(meta).toMatchObject({ b: [Number(number) + 0, 1] });
    }
  });
});

describe("the Connect protocol refuses the same JSON", () => {
  const overConnect = bodies.filter(([, , , overConnect]) => overConnect);

  test.each(overConnect)("with the same error code: %s %s", async (operation, body) => {
    const { status, code, info, scene } = await postOverConnect(operation, body);
    expect([status, code]).toEqual([400, "invalid_argument"]);
    expect(info?.reason).toBe("INVALID_INPUT");
    expect(info?.metadata["requestId"]).toMatch(requestIdForm);
    await expectNothingStored(scene);
  });

  test.each(overConnect)("naming the same field: %s %s", async (operation, body, locations) => {
    const { badRequest } = await postOverConnect(operation, body);
    expect(badRequest?.fieldViolations.map(({ field }) => field)).toEqual(locations);
  });
});

async function postOverConnect(operation: OperationName, body: string) {
  const scene = await openScene(contract.protocols.connect, contract.clock);
  const { rpc } = operationOf(operation);
  const response = await post(pathOf(rpc), scene, operation, body);
  const { code, details = [] } = (await response.json()) as {
    code: string;
    details?: { type: string; value: string }[];
  };
  const detail = <Schema extends DescMessage>(schema: Schema) => {
    const found = details.find(({ type }) => type === schema.typeName);
    return found && fromBinary(schema, Buffer.from(found.value, "base64"));
  };
  return { scene, status: response.status, code, info: detail(ErrorInfoSchema), badRequest: detail(BadRequestSchema) };
}

async function expectNothingStored({ ok, home }: Scene): Promise<void> {
  expect(await ok("listIdentities", home.key)).toEqual([]);
  expect(await ok("listKeys", home.key)).toHaveLength(1);
}

function post(path: string, { home }: Scene, operation: OperationName, body: string | Uint8Array): Promise<Response> {
  const credential = operationOf(operation).scope === undefined ? operatorKey : home.key;
  const headers = { Authorization: `Bearer ${credential}`, "Content-Type": "application/json" };
  return fetch(contract.app.httpUrl + path, { method: "POST", headers, body: Buffer.from(body) });
}
