import type { FastifyInstance } from "fastify";
import { afterAll, beforeAll, expect, test } from "vitest";
import { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import { catalogue, failureCodes, pathOf } from "../../src/errors.js";
import { createGateway } from "../../src/gateway/server.js";
import { createProcedures } from "../../src/rpc/pipeline.js";
import { operationOf } from "../contract/operations.js";
import type { OpenApi } from "./reference.js";
import { names } from "./stage.js";

const docsBase = "https://docs.example.com/latchkey";
let gateway: FastifyInstance;
let document: OpenApi;

beforeAll(async () => {
  const services = [KeysService, IdentitiesService, WorkspacesService];
  gateway = await createGateway({
    procedures: createProcedures(
      services.map((descriptor) => ({ descriptor, handlers: {} })),
      () => ({ kind: "operator" }),
    ),
    readiness: async () => ({}),
    drainMs: 0,
    docsBase: () => docsBase,
    logCall: () => {},
  });
  document = (await gateway.inject("/openapi.json")).json();
});
afterAll(() => gateway.close());

test("the document has the routes that the gateway serves, and no others", () => {
  const besides = /^\/($|docs\b|openapi\.json$|api-reference\/|latchkey\.v1\.)/; // pages, and the paths of Connect
  const served = routesOf(gateway).filter(({ path }) => !besides.test(path));
  const documented = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.keys(item).map((method) => ({ path, method: method.toUpperCase() })),
  );
  const listed = (routes: { path: string; method: string }[]) => routes.map(({ path, method }) => `${method} ${path}`);
  expect(served.length).toBeGreaterThan(20);
  expect(listed(documented).sort()).toEqual(listed(served).sort());
});

test("the document has an example of every failure of the catalogue, with its status and its address", () => {
  const shown = Object.entries(document.components.examples).map(([name, { value }]) => ({ name, ...value.error }));
  const expected = failureCodes.map((code) => ({
    name: pathOf(code).replace("/", "."),
    status: catalogue[code].status,
    type: `${docsBase}/api-reference/errors-v2/service/${pathOf(code)}`,
  }));
  expect(shown).toMatchObject(expected);
  expect(shown).toHaveLength(expected.length);
});

test.each(names)("the document says who may call %s", (name) => {
  const { permission, alsoOperator, routes } = operationOf(name);
  const key = permission === undefined ? [] : [{ key: [permission] }];
  const operator = permission === undefined || alsoOperator ? [{ operator: [] }] : [];
  for (const [method, path] of routes) {
    expect(document.paths[path]?.[method.toLowerCase()]?.security).toEqual([...key, ...operator]);
  }
});

/** Reads the routes from the tree that Fastify prints: a branch goes on where the one above it ends. */
function routesOf(server: FastifyInstance): { path: string; method: string }[] {
  const branches: string[] = [];
  return server
    .printRoutes({ commonPrefix: false })
    .split("\n")
    .flatMap((line) => {
      const [, indent = "", name = "", methods] = /^([│ ]*)[├└]── (\S*)(?: \((.*)\))?/.exec(line) ?? [];
      branches.splice(indent.length / 4, Number.POSITIVE_INFINITY, name);
      const served = methods?.split(", ").filter((method) => method !== "HEAD") ?? [];
      return served.map((method) => ({ path: branches.join(""), method }));
    });
}
