import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type AuditEventResponse, listEvents, readPage, succeed, walk } from "../../support/calls.js";
import { createWorkspace, expectError, expectInvalid, post } from "../../support/clients/http-requests.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";

const list = "workspaces.listAuditEvents";
let app: TestApp;
let origin: string;
let workspaceId: string;
let key: string;
let otherWorkspaceId: string;
/** The events of the workspace, oldest first, each some time after the previous one. */
let events: AuditEventResponse[];

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
  events = (await listEvents(origin, key)).reverse();
});
afterAll(() => app.close());

describe("audit events are listed newest first", () => {
  it("each once, in the order of the changes", () => {
    const round = ["identity.create", "key.create", "key.update"];
    const types = ["workspace.create", "key.create", ...round, ...round, ...round, ...round];
    expect(events.map(({ type }) => type)).toEqual(types);
    expect(events.map(({ at }) => at)).toEqual(events.map(({ at }) => at).sort((a, b) => a - b));
  });

  it("the operator sees the events of all workspaces, or those of the requested one", async () => {
    const all = await listEvents(origin, operatorKey);
    expect(new Set(all.map((event) => event.workspaceId))).toEqual(new Set([workspaceId, otherWorkspaceId]));
    expect(await listEvents(origin, operatorKey, { workspaceId })).toEqual(events.toReversed());
  });

  it("tenant isolation: a key sees only its own workspace's events, and not whether another exists", async () => {
    expect(await listEvents(origin, key, { workspaceId })).toEqual(events.toReversed());
    for (const requested of [otherWorkspaceId, "ws_00000000000000000000000000"]) {
      const response = await post(origin, `/v2/${list}`, key, { workspaceId: requested });
      expectError(response, 404, "data/workspace_not_found");
    }
    const foreign = (await listEvents(origin, operatorKey, { workspaceId: otherWorkspaceId }))[0]?.resourceId;
    expect(await listEvents(origin, key, { resourceId: foreign })).toEqual([]);
  });

  it("a key without audit.read sees none", async () => {
    const body = { scopes: ["keys.*", "identities.*"] };
    const { key: weak } = await succeed<{ key: string }>(origin, "keys.createKey", key, body);
    events = (await listEvents(origin, key)).reverse();
    const response = await post(origin, `/v2/${list}`, weak, {});
    expectError(response, 403, "authorization/insufficient_permissions");
  });
});

describe("audit events are filtered", () => {
  const matching = (test: (event: AuditEventResponse) => boolean) => events.filter(test).reverse();

  it.each(["key.create", "key.update", "identity.create", "workspace.create"])("by the type %s", async (type) => {
    const expected = matching((event) => event.type === type);
    expect(expected).not.toEqual([]);
    expect(await listEvents(origin, key, { type })).toEqual(expected);
  });

  it("by a type without events, or a part of a type: none", async () => {
    for (const type of ["key.delete", "key", "key.%", "KEY.CREATE"]) {
      expect(await listEvents(origin, key, { type })).toEqual([]);
    }
  });

  it("by resource", async () => {
    for (const resourceId of new Set(events.map((event) => event.resourceId))) {
      const expected = matching((event) => event.resourceId === resourceId);
      expect(await listEvents(origin, key, { resourceId })).toEqual(expected);
    }
  });

  it("by time: `since` is inclusive, `until` is exclusive, at every event and a millisecond around it", async () => {
    for (const event of events.slice(2, 6)) {
      for (const moment of [event.at - 1, event.at, event.at + 1]) {
        const later = await listEvents(origin, key, { since: moment });
        expect(later).toEqual(matching(({ at }) => at >= moment));
        const earlier = await listEvents(origin, key, { until: moment });
        expect(earlier).toEqual(matching(({ at }) => at < moment));
      }
      expect(await listEvents(origin, key, { since: event.at, until: event.at })).toEqual([]);
    }
  });

  it("by all filters at once", async () => {
    const target = events.filter(({ type }) => type === "key.update")[2] ?? expect.fail("too few events");
    const { type, resourceId, at } = target;
    expect(await listEvents(origin, key, { workspaceId, type, resourceId, since: at, until: at + 1 })).toEqual([
      target,
    ]);
    expect(await listEvents(origin, key, { workspaceId, type, resourceId, since: at + 1 })).toEqual([]);
  });
});

describe("pagination of audit events", () => {
  it.each([1, 2, 3, 5, 14, 100])("pages of %i: none lost, none returned twice", async (limit) => {
    expect(await walk(origin, list, key, { limit })).toEqual(events.toReversed());
  });

  it("works with a filter", async () => {
    const expected = events.filter(({ type }) => type === "key.create").reverse();
    expect(await walk(origin, list, key, { limit: 2, type: "key.create" })).toEqual(expected);
  });

  it("invalid limits and cursors, and cursors of other lists, are refused", async () => {
    const { pagination } = await readPage<AuditEventResponse>(origin, "keys.listKeys", key, { limit: 1 });
    expect(pagination.cursor).toBeDefined();
    for (const body of [{ limit: 0 }, { limit: 101 }, { cursor: "garbled" }, { cursor: pagination.cursor }]) {
      expect(expectInvalid(await post(origin, `/v2/${list}`, key, body))).toEqual(Object.keys(body));
    }
  });
});
