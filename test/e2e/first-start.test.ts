import { spawnSync } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { needsCurl, skipTest } from "../support/skip.js";
import {
  call,
  makeSandbox,
  paste,
  project,
  readSecret,
  type Sandbox,
  type Service,
  start,
  stop,
  waitForExit,
} from "./service.js";

describe("the first start", () => {
  test("prints the addresses, and stores the first key and the operator key in files that only their owner can read", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox);

    expect(service.httpUrl).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(service.grpcAddress).toMatch(/^127\.0\.0\.1:\d+$/);
    const banner = service.stdout();
    expect(banner).toMatch(/PostgreSQL +embedded/);
    expect(banner).toMatch(/Redis +embedded/);
    expect(banner).toContain(sandbox.dataDir);
    expect(banner).toContain(sandbox.operatorKeyFile);
    expect(banner.split("\n").length, "a few lines").toBeLessThan(30);
    expect(banner).toContain(sandbox.firstKeyFile);
    expect(await listKeys(service, readSecret(sandbox.firstKeyFile))).toMatchObject([{ name: "first key" }]);
    expect(service.stderr(), "only log lines").toMatch(/^(\{.*\}\n)*$/);

    for (const file of [sandbox.firstKeyFile, sandbox.operatorKeyFile]) {
      expect(statSync(file).mode & 0o777, file).toBe(0o600);
    }
    const created = await call(service, "/v2/workspaces.createWorkspace", readSecret(sandbox.operatorKeyFile), {
      name: "another",
    });
    expect(created).toMatchObject({ status: 200, data: { key: expect.stringMatching(/^lk_/) } });
  });

  test("prints no secret where the output may be stored, as in a journal or the log of a container", async () => {
    const sandbox = makeSandbox();
    const service = await start(sandbox, { set: { LOG_LEVEL: "trace" } });
    for (const file of [sandbox.firstKeyFile, sandbox.operatorKeyFile]) {
      const secret = readSecret(file);
      expect(secret.length).toBeGreaterThan(24);
      expect(service.stdout() + service.stderr(), file).not.toContain(secret);
    }
  });

  test("prints the first key, and not the operator key, on a terminal", async (ctx) => {
    if (!/util-linux/.test(spawnSync("script", ["--version"], { encoding: "utf8" }).stdout)) {
      skipTest(ctx, "this machine has no `script` of util-linux, which runs a program on a terminal");
    }
    const sandbox = makeSandbox();
    const node = `'${process.execPath}' '${join(project, "dist/src/main.js")}' serve`;
    const service = await start(sandbox, { command: ["script", "-qefc", node, "/dev/null"] });
    expect(service.stdout()).toContain(readSecret(sandbox.firstKeyFile));
    expect(service.stdout()).not.toContain(readSecret(sandbox.operatorKeyFile));
    service.signalGroup("SIGTERM");
    await waitForExit(service);
  });

  test("works with a relative DATA_DIR that has quotes, spaces and a dollar sign, and with empty variables", async (ctx) => {
    needsCurl(ctx);
    const sandbox = makeSandbox();
    const emptyVariables = {
      HOST: "",
      DATABASE_URL: "",
      REDIS_URL: "",
      OPERATOR_KEY: "",
      DOCS_BASE_URL: "",
      LOG_LEVEL: "",
    };
    const service = await start(sandbox, { set: { ...emptyVariables, DATA_DIR: `it's "my" $HOME` } });
    expect(service.stdout()).toMatch(/PostgreSQL +embedded/);
    await expectToListTheKey(curlOf(service), sandbox);
  });
});

describe("the printed commands", () => {
  test("curl and buf curl work as pasted in the project, list the key, and do not contain the secret", async (ctx) => {
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    expect(service.commands, "there are no others").toEqual([curlOf(service), bufOf(service)]);
    for (const command of service.commands) expect(command).not.toContain(readSecret(sandbox.firstKeyFile));
    await expectToListTheKey(bufOf(service), sandbox);
    needsCurl(ctx);
    await expectToListTheKey(curlOf(service), sandbox);
  });
});

describe("a restart", () => {
  test("keeps all data, does not print the key again, and prints commands that work", async (ctx) => {
    const sandbox = makeSandbox();
    const first = await start(sandbox);
    const key = readSecret(sandbox.firstKeyFile);
    const { data: created } = await call(first, "/v2/identities.createIdentity", key, { externalId: "user-1" });
    const operatorKey = readSecret(sandbox.operatorKeyFile);
    expect(await stop(first)).toMatchObject({ code: 0 });

    const second = await start(sandbox);
    expect(second.stdout() + second.stderr()).not.toContain(key);
    expect(await listKeys(second, key)).toHaveLength(1);
    expect(await call(second, "/v2/identities.getIdentity", key, { externalId: "user-1" })).toMatchObject({
      status: 200,
      data: created,
    });
    expect(readSecret(sandbox.operatorKeyFile)).toBe(operatorKey);
    expect(await call(second, "/v2/workspaces.listWorkspaces", operatorKey)).toMatchObject({
      status: 200,
      data: [{ name: "My first workspace" }],
    });
    await expectToListTheKey(bufOf(second), sandbox);
    needsCurl(ctx);
    await expectToListTheKey(curlOf(second), sandbox);
  });
});

async function listKeys(service: Service, key: string): Promise<unknown> {
  const { status, data } = await call(service, "/v1/keys.listKeys", key);
  expect(status).toBe(200);
  return data;
}

/** Both commands print JSON with the first key. */
async function expectToListTheKey(command: string, sandbox: Sandbox): Promise<void> {
  const { code, stdout, stderr } = await paste(command, sandbox);
  expect(code, stderr).toBe(0);
  const response = JSON.parse(stdout);
  expect(response.data ?? response.keys).toMatchObject([{ keyId: expect.stringMatching(/^key_/), name: "first key" }]);
}

function curlOf({ commands }: Service): string {
  return commands.find((command) => command.startsWith("curl ")) ?? "false # no curl command was printed";
}

function bufOf({ commands }: Service): string {
  return (
    commands.find((command) => command.startsWith("npx @bufbuild/buf curl ")) ?? "false # no buf command was printed"
  );
}
