import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { readConfig } from "../../src/config.js";
import { commandLine } from "../e2e/cli/command-line.js";
import { post } from "../support/clients/http-requests.js";
import { openFileApp } from "../support/file-service.js";
import { openTestApp, operatorKey } from "../support/harness.js";
import { allProtocols, openContract } from "./cases.js";

const alice = "credential-of-alice-1234567890";
const aliceNext = "next-credential-of-alice-123456";
const deploy = "credential-of-deploy-1234567890";
const OPERATOR_KEYS = `alice:${alice},alice:${aliceNext},deploy:${deploy}`;
const { operators } = readConfig({ OPERATOR_KEY: operatorKey, OPERATOR_KEYS });

const { everyProtocol } = openContract(allProtocols, { operators }, { alwaysInTurn: true });

describe("several operators", () => {
  everyProtocol("are each named in the audit events of their changes", async (scene) => {
    const { workspaceId } = scene.home;
    const changes = [
      ["disableWorkspace", alice, { workspaceId, reason: "OWNER_REQUEST" }],
      ["enableWorkspace", aliceNext, { workspaceId }],
      ["createRootKey", deploy, { workspaceId }],
      ["disableWorkspace", operatorKey, { workspaceId, reason: "OWNER_REQUEST" }],
    ] as const;
    for (const [operation, credential, request] of changes) await scene.ok(operation, credential, request);
    const events = (await scene.ok("listAuditEvents", alice, { workspaceId })) as { type: string; actor: string }[];
    expect(events.slice(0, 4).map(({ type, actor }) => `${type} by ${actor}`)).toEqual([
      "workspace.disable by operator",
      "key.create by operator:deploy",
      "workspace.enable by operator:alice",
      "workspace.disable by operator:alice",
    ]);
  });

  everyProtocol("are refused with anything else than their credentials", async (scene) => {
    for (const wrong of [`${alice}x`, alice.slice(0, -1), `alice:${alice}`, "operator:alice", OPERATOR_KEYS]) {
      await scene.refused("authentication/malformed", "listWorkspaces", [`Bearer ${wrong}`], {});
    }
  });

  everyProtocol("have idempotency keys of their own", async (scene) => {
    const headers = [["idempotency-key", `same-${Math.random()}`]] as const;
    const create = async (credential: string) =>
      (await scene.ok("createWorkspace", credential, { name: "one" }, headers)) as { workspaceId: string };
    const first = await create(alice);
    expect(await create(alice), "a retry").toEqual(first);
    expect((await create(deploy)).workspaceId).not.toBe(first.workspaceId);
  });
});

it("a credential is rotated without a refused call: old, both, new, on replicas of one database", async () => {
  const withKeys = (keys: string) => readConfig({ OPERATOR_KEYS: keys }).operators;
  const before = await openTestApp({ operators: withKeys(`alice:${alice}`) });
  const { databaseUrl } = before;
  const during = await openTestApp({ databaseUrl, operators: withKeys(`alice:${alice},alice:${aliceNext}`) });
  const after = await openTestApp({ databaseUrl, operators: withKeys(`alice:${aliceNext}`) });
  const isAccepted = async (app: typeof before, credential: string) =>
    (await post(app.httpUrl, "/v2/workspaces.listWorkspaces", credential, {})).status === 200;
  try {
    expect([await isAccepted(before, alice), await isAccepted(before, aliceNext)]).toEqual([true, false]);
    expect([await isAccepted(during, alice), await isAccepted(during, aliceNext)]).toEqual([true, true]);
    expect([await isAccepted(after, alice), await isAccepted(after, aliceNext)]).toEqual([false, true]);
  } finally {
    await after.close();
    await during.close();
    await before.close();
  }
});

describe("docs/operations/operators.md", () => {
  const page = readFileSync("docs/operations/operators.md", "utf8");
  const lists = [...page.matchAll(/^ *```\n([^`]*)```/gm)].map(([, list = ""]) => list);

  it("has lists of operators that the service accepts", () => {
    expect(lists).toHaveLength(2);
    const names = lists.map((list) => readConfig({ OPERATOR_KEYS: list }).operators.map(({ actor }) => actor));
    expect(names).toEqual([
      ["operator:alice", "operator:deploy"],
      ["operator:alice", "operator:alice", "operator:deploy"],
    ]);
  });
});

describe("the command line", async () => {
  const app = await openFileApp({ operators });

  it("prints the operator of each event", async () => {
    const { run } = commandLine(app, deploy);
    expect(await run("workspace", "create", "acme")).toMatchObject({ exitCode: 0 });
    const { stdout } = await run("audit", "list");
    expect(stdout).toMatch(/workspace\.create .*operator:deploy/);
  });
});
