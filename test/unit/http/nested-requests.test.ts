import type { AddressInfo } from "node:net";
import { fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BadRequestSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { changedFields } from "../../../src/call/update-mask.js";
import { invalidInput } from "../../../src/errors.js";
import { createHttpPort } from "../../../src/http/server.js";
import { createLog } from "../../../src/observe/log.js";
import { defaultLimits } from "../../../src/overload/limits.js";
import { createMemoryBudget } from "../../../src/overload/memory-budget.js";
import { createProcedures } from "../../../src/rpc/pipeline.js";
import { toRequestMessage } from "../../support/clients/messages.js";
import { CheckLimitsRequestSchema, ThingsService, UpdateThingRequestSchema } from "../../support/things-service.js";

/** The requests that the handlers have received, and the changed fields of the last update. */
const received: Message[] = [];
let changed: string[] = [];

const caller = {
  kind: "key",
  workspaceId: "ws_1",
  keyId: "key_1",
  scopes: ["*"],
  expiresAt: null,
  hash: "",
} as const;
const authentication = { authenticate: () => caller, recheck: () => caller, reread: async () => caller };

function handle(request: Message) {
  received.push(request);
  return {};
}

const handlers = {
  updateThing(request: Message) {
    changed = [...changedFields(UpdateThingRequestSchema, request as never)];
    return handle(request);
  },
  importThings: handle,
  checkLimits(request: Message & { limits: { name: string }[] }) {
    const index = request.limits.findIndex(({ name }) => name === "unknown");
    if (index !== -1) throw invalidInput([{ location: `limits[${index}].name`, message: "is not known" }]);
    return handle(request);
  },
};

let port: Awaited<ReturnType<typeof createHttpPort>>;
let origin: string;

beforeAll(async () => {
  const shedding = { count: () => {}, counts: { event_loop: 0, database: 0, connections: 0, memory: 0 } };
  const services = [{ descriptor: ThingsService, handlers: handlers as never }];
  port = await createHttpPort({
    procedures: createProcedures(services, authentication, (_method, handleCall) => handleCall),
    readiness: async () => ({}),
    certificates: undefined,
    corsOrigins: [],
    maxConnections: 10,
    limits: defaultLimits,
    memory: createMemoryBudget(defaultLimits, shedding),
    guard: { accepts: () => true },
    shedding,
    lingerMs: 0,
    drainMs: 0,
    docsBase: () => "http://localhost",
    grpcPort: () => 0,
    log: createLog("silent"),
    logCall: () => {},
  });
  await port.listen({ host: "127.0.0.1", port: 0 });
  origin = `http://127.0.0.1:${(port.server.address() as AddressInfo).port}`;
});
afterAll(() => port.close());

function post(path: string, body: string | Buffer, contentType = "application/json"): Promise<Response> {
  return fetch(origin + path, { method: "POST", headers: { "content-type": contentType }, body: Buffer.from(body) });
}

/** The field errors of an HTTP/JSON request, as location and message; an empty list if it succeeded. */
async function httpErrors(path: string, body: string): Promise<string[]> {
  const response = await post(path, body);
  const { error } = (await response.json()) as {
    error?: { detail: string; errors: { location: string; message: string }[] };
  };
  const errors = error?.errors.map(({ location, message }) => `${location} ${message}`) ?? [];
  expect(response.status).toBe(errors.length > 0 ? 400 : 200);
  if (error !== undefined) expect(error.detail).toContain(errors[0]);
  return errors;
}

/** The same over Connect, in either encoding. */
async function connectErrors(rpc: string, body: string | Buffer, contentType = "application/json"): Promise<string[]> {
  const response = await post(`/latchkey.test.v1.ThingsService/${rpc}`, body, contentType);
  if (response.status === 200) return [];
  const { details } = (await response.json()) as { details: { type: string; value: string }[] };
  const detail = details.find(({ type }) => type === BadRequestSchema.typeName);
  const { fieldViolations } = fromBinary(BadRequestSchema, Buffer.from(detail?.value ?? "", "base64"));
  return fieldViolations.map(({ field, description }) => `${field} ${description}`);
}

const updateThing = "/v2/things.updateThing";
const checkLimits = "/v2/things.checkLimits";
const credits = { remaining: 5, refill: { interval: "daily", amount: 1 } };

describe("a request with messages", () => {
  it("is the same over every protocol", async () => {
    const request = { thingId: "a", credits, limits: [{ name: "a", limit: 1, tags: ["b"] }] };
    const message = toRequestMessage(UpdateThingRequestSchema, request);
    expect(await httpErrors(updateThing, JSON.stringify(request))).toEqual([]);
    const paths = ["credits.remaining", "credits.refill", "limits"];
    expect(received.at(-1)).toEqual(toRequestMessage(UpdateThingRequestSchema, { ...request, updateMask: { paths } }));
    expect(changed).toEqual(paths);
    expect(await connectErrors("UpdateThing", JSON.stringify(request))).toEqual([]);
    expect(received.at(-1)).toEqual(message);
    expect(changed).toEqual(paths);
    const bytes = Buffer.from(toBinary(UpdateThingRequestSchema, message));
    expect(await connectErrors("UpdateThing", bytes, "application/proto")).toEqual([]);
    expect(received.at(-1)).toEqual(message);
  });

  it("changes members of a message one by one, over every protocol", async () => {
    const request = { thingId: "a", credits: { remaining: null } };
    await httpErrors(updateThing, JSON.stringify(request));
    expect(changed).toEqual(["credits.remaining"]);
    const masked = { thingId: "a", credits: {}, updateMask: "credits.remaining" };
    expect(await connectErrors("UpdateThing", JSON.stringify(masked))).toEqual([]);
    expect(changed).toEqual(["credits.remaining"]);
    const bytes = Buffer.from(toBinary(UpdateThingRequestSchema, toRequestMessage(UpdateThingRequestSchema, request)));
    expect(await connectErrors("UpdateThing", bytes, "application/proto")).toEqual([]);
    expect(changed).toEqual(["credits.remaining"]);
  });

  // biome-ignore format: one line each
  it.each<[string, string]>([
    [`{"thingId":"a","credits":{"remaining":"x"}}`, "credits.remaining"],
    [`{"thingId":"a","credits":{"surprise":1}}`, "credits.surprise"],
    [`{"thingId":"a","credits":{"refill":5}}`, "credits.refill"],
    [`{"thingId":"a","credits":{"refill":{"interval":"daily","amount":0}}}`, "credits.refill.amount"],
    [`{"thingId":"a","limits":[{"name":"a","limit":1},{"name":"b","limit":{}}]}`, "limits[1].limit"],
    [`{"thingId":"a","limits":[{"name":"a","limit":1},5]}`, "limits[1]"],
    [`{"thingId":"a","limits":[{"name":"a","limit":1,"tags":["a",5]}]}`, "limits[0].tags[1]"],
    [`{"thingId":"a","limits":[{"name":"a","limit":1,"name":"b"}]}`, "limits[0].name"],
    [`{"thingId":"a","limits":[{"name":"\\u0000","limit":1}]}`, "limits[0].name"],
    [`{"thingId":"a","limits":[{},{},{},{},{},{}]}`, "limits"],
  ])("%s is refused by naming %s, over HTTP and Connect", async (body, location) => {
    const before = received.length;
    for (const errors of [await httpErrors(updateThing, body), await connectErrors("UpdateThing", body)]) {
      expect(errors.map((error) => error.replace(/ .*/, ""))).toEqual([location]);
    }
    expect(received).toHaveLength(before);
  });
});

describe("a body that is the value of one field", () => {
  it("is read", async () => {
    const limits = [
      { name: "a", limit: 1 },
      { name: "b", limit: 2 },
    ];
    expect(await httpErrors(checkLimits, JSON.stringify(limits))).toEqual([]);
    expect(received.at(-1)).toEqual(toRequestMessage(CheckLimitsRequestSchema, { limits }));
  });

  // biome-ignore format: one line each
  it.each<[string, string, string]>([
    ["its JSON", `[{"name":5}]`, "body[0].name must be a string"],
    ["its duplicate members", `[{"name":"a"},{"name":"a","name":"b"}]`, "body[1].name is given more than once"],
    ["its unknown members", `[{"surprise":5}]`, "body[0].surprise is not a known field; the known fields are name, limit, autoApply, tags, meta, until"],
    ["its rules", `[{"name":"a","limit":1},{"name":"a"}]`, "body[1].limit must be greater than 0 and less than or equal to 1000000"],
    ["its form", `[{"name":"\\u0000","limit":1}]`, "body[0].name must not contain the character U+0000"],
    ["its handler", `[{"name":"unknown","limit":1}]`, "body[0].name is not known"],
    ["its size", `[${Array(51).fill("{}").join()}]`, "body must contain no more than 50 item(s)"],
    ["its type", `{"limits":[]}`, "body must be an array"],
    ["null", `null`, "body must not be null"],
    ["its syntax", `[`, "body is not valid JSON: Unexpected end of JSON input"],
    ["its absence, which means an empty list", "", "body must contain at least 1 item(s)"],
  ])("has one notation for all errors, here of %s", async (_what, body, error) => {
    expect(await httpErrors(checkLimits, body)).toEqual([error]);
  });

  it("lists at most ten errors, and says so if there are more", async () => {
    const body = JSON.stringify(Array.from({ length: 20 }, () => ({ name: "a" })));
    expect(await httpErrors(checkLimits, body)).toHaveLength(10);
    expect(await (await post(checkLimits, body)).text()).toContain("and more than these ten");
  });

  it("is a message over Connect, with the name of the field", async () => {
    expect(await connectErrors("CheckLimits", `{"limits":[{"name":"a","limit":"1"}]}`)).toEqual([]);
    expect(await connectErrors("CheckLimits", `{"limits":[{"name":5}]}`)).toEqual([
      "limits[0].name cannot be read as string",
    ]);
  });

  it("over Connect, names a field that is given under both of its names", async () => {
    const body = `{"limits":[{"name":"a","limit":1,"autoApply":true,"auto_apply":true}]}`;
    expect(await connectErrors("CheckLimits", body)).toEqual(["limits[0].auto_apply is given more than once"]);
  });
});
