import type { DescMethodUnary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { changedFields } from "../../../src/call/update-mask.js";
import { ApiError } from "../../../src/errors.js";
import { decodeBody } from "../../../src/http/connect/body.js";
import { locateInBody } from "../../../src/http/json/body.js";
import { type Route, routesOf } from "../../../src/http/json/routes.js";
import { parseStrictJson } from "../../../src/http/json/strict-json.js";
import type { Procedure } from "../../../src/rpc/pipeline.js";
import { createValidate } from "../../../src/rpc/validate.js";
import type { ProtocolName } from "../../support/clients/raw-request.js";
import { ThingsService } from "../../support/things-service.js";
import { jsonKinds } from "./json-kinds.js";
import type { Input, Kind } from "./kind.js";
import { largeKinds } from "./large-kinds.js";
import { messageKinds } from "./message-kinds.js";
import { toOperation } from "./operations.js";
import { requestKinds } from "./request-kinds.js";

// The kinds of the fuzzer, applied to requests with messages, lists of messages and a body that is a list. This needs no
// service: the requests are only decoded and validated.

const methods = ThingsService.methods as DescMethodUnary[];
const validate = createValidate(methods.map(({ input }) => input));
const routes = new Map(methods.map((method) => [method, routesOf([{ method } as Procedure])[0] as Route]));

/** Decodes and validates a request as its protocol does. Returns the error, if any. */
function refusalOf(method: DescMethodUnary, protocol: ProtocolName, body: Buffer): ApiError | undefined {
  const route = routes.get(method) as Route;
  try {
    const request = decode(route, protocol, body);
    validate.form(method.input, request);
    validate.rules(method.input, request);
    changedFields(method.input, request as never);
    return undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return protocol === "http" && route.body ? locateInBody(error, route.body) : error;
  }
}

function decode({ procedure, body: format, read }: Route, protocol: ProtocolName, body: Buffer) {
  const { input } = procedure.method;
  if (protocol === "connect") return decodeBody(input, { framed: false, codec: "json" }, body);
  if (protocol === "connect-proto") return decodeBody(input, { framed: false, codec: "proto" }, body);
  if (protocol !== "http" || format === undefined) return decodeBody(input, { framed: true, codec: "proto" }, body);
  return read(parseStrictJson(body, format.shape, format.fieldName));
}

function check({ form, location = "" }: Input, refusal: ApiError | undefined): void {
  if (form === "valid") expect(refusal?.detail).toBeUndefined();
  if (form !== "invalid") return;
  const locations = refusal?.options.fields?.map((field) => field.location) ?? [];
  expect(
    locations.filter((each) => each.startsWith(location)),
    `an error at ${location}, not at ${locations}`,
  ).not.toEqual([]);
}

const kinds: Kind[] = [...requestKinds, ...jsonKinds, ...messageKinds, ...largeKinds].filter(
  ({ name }) => name !== "large headers" && name !== "large bodies, compressed",
);

describe.each(methods.map((method) => [method.name, method] as const))("%s", (_name, method) => {
  const operation = toOperation(method);

  describe.each(kinds.filter(({ applies }) => applies?.(operation) ?? true).map((kind) => [kind.name, kind] as const))(
    "%s",
    (_kind, kind) => {
      it.each(kind.protocols)("over %s", (protocol) => {
        fc.assert(
          fc.property(kind.make(operation, protocol), (draft) => {
            const input = draft({ credential: "", resolve: () => undefined });
            if (input.raw.by === "socket") return expect.fail("it is not sent as a request");
            check(input, refusalOf(method, protocol, input.raw.body));
          }),
          { numRuns: 20, seed: 4242 },
        );
      });
    },
  );
});

it("fuzzed requests reach the fields of messages", () => {
  const locations = new Set<string>();
  const operation = toOperation(ThingsService.method["updateThing"] as DescMethodUnary);
  for (const kind of [...jsonKinds, ...requestKinds]) {
    if (kind.applies?.(operation) === false) continue;
    for (const draft of fc.sample(kind.make(operation, "http"), { numRuns: 100, seed: 1 })) {
      locations.add(draft({ credential: "", resolve: () => undefined }).location ?? "");
    }
  }
  for (const location of ["credits", "credits.refill.amount", "limits[0].name", "limits[0].tags", "limits[0].meta"]) {
    expect(locations).toContain(location);
  }
});
