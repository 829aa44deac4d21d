import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { leaveOut, needsCurl } from "../support/skip.js";
import {
  call,
  ending,
  makePlace,
  type Place,
  paste,
  project,
  readSecret,
  type Service,
  start,
  stop,
} from "./service.js";

describe("the first start", () => {
  test("says what runs where, and keeps the first key and the operator's key in files that only their owner can read", async () => {
    const place = makePlace();
    const service = await start(place);

    expect(service.httpUrl).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(service.grpcAddress).toMatch(/^127\.0\.0\.1:\d+$/);
    const banner = service.stdout();
    expect(banner).toMatch(/PostgreSQL +embedded/);
    expect(banner).toMatch(/Redis +embedded/);
    expect(banner).toContain(place.dataDir);
    expect(banner).toContain(place.operatorKeyFile);
    expect(banner.split("\n").length, "a few lines").toBeLessThan(30);
    expect(banner).toContain(place.firstKeyFile);
    expect(await listKeys(service, readSecret(place.firstKeyFile))).toMatchObject([{ name: "first key" }]);
    expect(service.stderr(), "nothing but the log's own lines").toMatch(/^(\{.*\}\n)*$/);

    for (const file of [place.firstKeyFile, place.operatorKeyFile]) {
      expect(statSync(file).mode & 0o777, file).toBe(0o600);
    }
    const created = await call(service, "/v2/workspaces.createWorkspace", readSecret(place.operatorKeyFile), {
      name: "another",
    });
    expect(created).toMatchObject({ status: 200, data: { key: expect.stringMatching(/^lk_/) } });
  });

  test("shows no secret where what it prints may be kept, as in a journal or the log of a container", async () => {
    const place = makePlace();
    const service = await start(place, { set: { LOG_LEVEL: "trace" } });
    for (const file of [place.firstKeyFile, place.operatorKeyFile]) {
      const secret = readSecret(file);
      expect(secret.length).toBeGreaterThan(24);
      expect(service.stdout() + service.stderr(), file).not.toContain(secret);
    }
  });

  test("shows the first key, and not the operator's, on a terminal", async (ctx) => {
    if (!/util-linux/.test(spawnSync("script", ["--version"], { encoding: "utf8" }).stdout)) {
      leaveOut(ctx, "this machine has no `script` of util-linux, which runs a program on a terminal");
    }
    const place = makePlace();
    const node = `'${process.execPath}' '${join(project, "dist/src/main.js")}'`;
    const service = await start(place, { command: ["script", "-qefc", node, "/dev/null"] });
    expect(service.stdout()).toContain(readSecret(place.firstKeyFile));
    expect(service.stdout()).not.toContain(readSecret(place.operatorKeyFile));
    service.signalGroup("SIGTERM");
    await ending(service);
  });

  test("works in a folder with quotes, spaces and a dollar sign, named relatively, and when variables are set to nothing", async (ctx) => {
    needsCurl(ctx);
    const place = makePlace();
    const nothing = { HOST: "", DATABASE_URL: "", REDIS_URL: "", OPERATOR_KEY: "", DOCS_BASE_URL: "", LOG_LEVEL: "" };
    const service = await start(place, { set: { ...nothing, DATA_DIR: `it's "my" $HOME` } });
    expect(service.stdout()).toMatch(/PostgreSQL +embedded/);
    await expectToListTheKey(curlOf(service), place);
  });
});

describe("the printed commands", () => {
  test("curl and npx buf curl, pasted as they stand in the project, list the key and do not show it", async (ctx) => {
    const place = makePlace();
    const service = await start(place);
    expect(service.commands, "there are no others").toEqual([curlOf(service), bufOf(service)]);
    for (const command of service.commands) expect(command).not.toContain(readSecret(place.firstKeyFile));
    await expectToListTheKey(bufOf(service), place);
    needsCurl(ctx);
    await expectToListTheKey(curlOf(service), place);
  });
});

describe("a restart", () => {
  test("finds all data again, does not show the key again, and prints commands that work", async (ctx) => {
    const place = makePlace();
    const first = await start(place);
    const key = readSecret(place.firstKeyFile);
    const { data: created } = await call(first, "/v2/identities.createIdentity", key, { externalId: "user-1" });
    const operatorKey = readSecret(place.operatorKeyFile);
    expect(await stop(first)).toMatchObject({ code: 0 });

    const second = await start(place);
    expect(second.stdout() + second.stderr()).not.toContain(key);
    expect(await listKeys(second, key)).toHaveLength(1);
    expect(await call(second, "/v2/identities.getIdentity", key, { externalId: "user-1" })).toMatchObject({
      status: 200,
      data: created,
    });
    expect(readSecret(place.operatorKeyFile)).toBe(operatorKey);
    expect(await call(second, "/v2/workspaces.listWorkspaces", operatorKey)).toMatchObject({
      status: 200,
      data: [{ name: "My first workspace" }],
    });
    await expectToListTheKey(bufOf(second), place);
    needsCurl(ctx);
    await expectToListTheKey(curlOf(second), place);
  });
});

async function listKeys(service: Service, key: string): Promise<unknown> {
  const { status, data } = await call(service, "/v1/keys.listKeys", key);
  expect(status).toBe(200);
  return data;
}

/** Both commands answer JSON that holds the first key. */
async function expectToListTheKey(command: string, place: Place): Promise<void> {
  const { code, stdout, stderr } = await paste(command, place);
  expect(code, stderr).toBe(0);
  const answer = JSON.parse(stdout);
  expect(answer.data ?? answer.keys).toMatchObject([{ keyId: expect.stringMatching(/^key_/), name: "first key" }]);
}

function curlOf({ commands }: Service): string {
  return commands.find((command) => command.startsWith("curl ")) ?? "false # no curl command was printed";
}

function bufOf({ commands }: Service): string {
  return commands.find((command) => command.startsWith("npx buf curl ")) ?? "false # no buf command was printed";
}
