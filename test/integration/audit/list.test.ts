import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { listEvents, readPage, succeed, type ToldEvent, walk } from "../../support/calls.js";
import { createWorkspace, expectFailure, expectInvalid, post } from "../../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";

const list = "workspaces.listAuditEvents";
let app: TestApp;
let origin: string;
let workspaceId: string;
let key: string;
let otherWorkspaceId: string;
/** The events of the workspace, oldest first, as they were brought about: each a while after the one before. */
let made: ToldEvent[];

beforeAll(async () => {
  app = await openTestApp();
  origin = app.httpUrl;
  ({ workspaceId: otherWorkspaceId } = await createWorkspace(origin, "other"));
  ({ workspaceId, key } = await createWorkspace(origin));
  for (let i = 0; i < 4; i++) {
    await app.advance(1_000);
    await succeed(origin, "identities.createIdentity", key, { externalId: `user_${i}` });
    await app.advance(1_000);
    const { keyId } = await succeed<{ keyId: string }>(origin, "keys.createKey", key, {});
    await app.advance(1_000);
    await succeed(origin, "keys.updateKey", key, { keyId, name: `name_${i}` });
  }
  made = (await listEvents(origin, key)).reverse();
});
afterAll(() => app.close());

describe("the events are listed newest first", () => {
  it("each once, in the order in which they were made", () => {
    const round = ["identity.create", "key.create", "key.update"];
    const types = ["workspace.create", "key.create", ...round, ...round, ...round, ...round];
    expect(made.map(({ type }) => type)).toEqual(types);
    expect(made.map(({ at }) => at)).toEqual(made.map(({ at }) => at).sort((a, b) => a - b));
  });

  it("the operator sees every workspace's, or those of the one that is asked for", async () => {
    const all = await listEvents(origin, operatorKey);
    expect(new Set(all.map((event) => event.workspaceId))).toEqual(new Set([workspaceId, otherWorkspaceId]));
    expect(await listEvents(origin, operatorKey, { workspaceId })).toEqual(made.toReversed());
  });

  it("a key sees its own workspace's alone, and cannot ask whether another exists", async () => {
    expect(await listEvents(origin, key, { workspaceId })).toEqual(made.toReversed());
    for (const asked of [otherWorkspaceId, "ws_00000000000000000000000000"]) {
      const answer = await post(origin, `/v2/${list}`, key, { workspaceId: asked });
      expectFailure(answer, 404, "data/workspace_not_found");
    }
    const foreign = (await listEvents(origin, operatorKey, { workspaceId: otherWorkspaceId }))[0]?.resourceId;
    expect(await listEvents(origin, key, { resourceId: foreign })).toEqual([]);
  });

  it("a key without audit.read sees none", async () => {
    const body = { scopes: ["keys.*", "identities.*"] };
    const { key: weak } = await succeed<{ key: string }>(origin, "keys.createKey", key, body);
    made = (await listEvents(origin, key)).reverse();
    const answer = await post(origin, `/v2/${list}`, weak, {});
    expectFailure(answer, 403, "authorization/insufficient_permissions");
  });
});

describe("the events are filtered", () => {
  const matching = (test: (event: ToldEvent) => boolean) => made.filter(test).reverse();

  it.each(["key.create", "key.update", "identity.create", "workspace.create"])("by the type %s", async (type) => {
    const expected = matching((event) => event.type === type);
    expect(expected).not.toEqual([]);
    expect(await listEvents(origin, key, { type })).toEqual(expected);
  });

  it("by a type that never happened, or a piece of one: none", async () => {
    for (const type of ["key.delete", "key", "key.%", "KEY.CREATE"]) {
      expect(await listEvents(origin, key, { type })).toEqual([]);
    }
  });

  it("by resource", async () => {
    for (const resourceId of new Set(made.map((event) => event.resourceId))) {
      const expected = matching((event) => event.resourceId === resourceId);
      expect(await listEvents(origin, key, { resourceId })).toEqual(expected);
    }
  });

  it("by time: since is included, until is not, at every event and a millisecond around it", async () => {
    for (const event of made.slice(2, 6)) {
      for (const moment of [event.at - 1, event.at, event.at + 1]) {
        const later = await listEvents(origin, key, { since: moment });
        expect(later).toEqual(matching(({ at }) => at >= moment));
        const earlier = await listEvents(origin, key, { until: moment });
        expect(earlier).toEqual(matching(({ at }) => at < moment));
      }
      expect(await listEvents(origin, key, { since: event.at, until: event.at })).toEqual([]);
    }
  });

  it("by all of them at once", async () => {
    const target = made.filter(({ type }) => type === "key.update")[2] ?? expect.fail("too few events");
    const { type, resourceId, at } = target;
    expect(await listEvents(origin, key, { workspaceId, type, resourceId, since: at, until: at + 1 })).toEqual([
      target,
    ]);
    expect(await listEvents(origin, key, { workspaceId, type, resourceId, since: at + 1 })).toEqual([]);
  });
});

describe("the events come in pages", () => {
  it.each([1, 2, 3, 5, 14, 100])("of %i: none lost, none doubled", async (limit) => {
    expect(await walk(origin, list, key, { limit })).toEqual(made.toReversed());
  });

  it("within a filter", async () => {
    const expected = made.filter(({ type }) => type === "key.create").reverse();
    expect(await walk(origin, list, key, { limit: 2, type: "key.create" })).toEqual(expected);
  });

  it("of which those that were not asked for are refused", async () => {
    const { pagination } = await readPage<ToldEvent>(origin, "keys.listKeys", key, { limit: 1 });
    expect(pagination.cursor).toBeDefined();
    for (const body of [{ limit: 0 }, { limit: 101 }, { cursor: "garbled" }, { cursor: pagination.cursor }]) {
      expect(expectInvalid(await post(origin, `/v2/${list}`, key, body))).toEqual(Object.keys(body));
    }
  });
});
