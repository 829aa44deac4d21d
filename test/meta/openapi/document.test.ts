import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { FastifyInstance } from "fastify";
import { afterAll, beforeAll, expect, test } from "vitest";
import { catalogue, errorCodes, pathOf } from "../../../src/errors.js";
import { openTestApp, type TestApp } from "../../support/harness.js";
import { operationOf } from "../../support/operations.js";
import type { OpenApi } from "./reference.js";
import { names } from "./stage.js";

const docsBase = "https://docs.example.com/latchkey";
const servers: FastifyInstance[] = [];
let app: TestApp;
let document: OpenApi;

beforeAll(async () => {
  // Fastify publishes every server that is created; only the gateway's server knows its routes.
  const made = (message: unknown) => servers.push((message as { fastify: FastifyInstance }).fastify);
  subscribe("fastify.initialization", made);
  app = await openTestApp({ docsBaseUrl: docsBase });
  unsubscribe("fastify.initialization", made);
  document = (await (await fetch(`${app.httpUrl}/openapi.json`)).json()) as OpenApi;
});
afterAll(() => app.close());

test("the document has the routes that the gateway serves, and no others", () => {
  const besides = /^\/($|docs\b|openapi\.json$|favicon|api-reference\/|latchkey\.v1\.)/; // pages, and Connect's paths
  const served = servers.flatMap(routesOf).filter(({ path }) => !besides.test(path));
  const documented = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.keys(item).map((method) => ({ path, method: method.toUpperCase() })),
  );
  const listed = (routes: { path: string; method: string }[]) => routes.map(({ path, method }) => `${method} ${path}`);
  expect(served.length).toBeGreaterThan(20);
  expect(listed(documented).sort()).toEqual(listed(served).sort());
});

test("the document has an example of every error of the catalogue, with its status and type", () => {
  const shown = Object.entries(document.components.examples).map(([name, { value }]) => ({ name, ...value.error }));
  const expected = errorCodes.map((code) => ({
    name: pathOf(code).replace("/", "."),
    status: catalogue[code].status,
    type: `${docsBase}/api-reference/errors-v2/service/${pathOf(code)}`,
  }));
  expect(shown).toMatchObject(expected);
  expect(shown).toHaveLength(expected.length);
});

test.each(names)("the document describes the authorization of %s", (name) => {
  const { scope, alsoOperator, routes } = operationOf(name);
  const key = scope === undefined ? [] : [{ key: [scope] }];
  const operator = scope === undefined || alsoOperator ? [{ operator: [] }] : [];
  for (const [method, path] of routes) {
    expect(document.paths[path]?.[method.toLowerCase()]?.security).toEqual([...key, ...operator]);
  }
});

test.each(names)("the document describes whether %s accepts an Idempotency-Key", (name) => {
  const { acceptsIdempotencyKey, routes } = operationOf(name);
  for (const [method, path] of routes) {
    const { parameters = [] } = document.paths[path]?.[method.toLowerCase()] ?? {};
    const acceptsKey = parameters.some((one) => "$ref" in one && String(one.$ref).endsWith("/Idempotency-Key"));
    expect(acceptsKey).toBe(acceptsIdempotencyKey === true);
  }
});

/** Parses the routes from the tree that Fastify prints. A branch continues the path of the one above it. */
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
