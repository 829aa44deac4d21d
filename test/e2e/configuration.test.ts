import { existsSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { createDatabase } from "../support/harness.js";
import { skipTest } from "../support/skip.js";
import { remainingProcesses } from "./processes.js";
import {
  call,
  expectUserError,
  launch,
  makeSandbox,
  project,
  type Sandbox,
  start,
  unusedPort,
  waitForExit,
} from "./service.js";

describe("an invalid value is reported by name, with the expected value:", () => {
  test.each([
    ["LATCHKEY_HOST", "two words", /127\.0\.0\.1/],
    ["HTTP_PORT", "http", /port number/],
    ["HTTP_PORT", "65536", /65535/],
    ["GRPC_PORT", "-1", /port number/],
    ["DATABASE_URL", "mysql://localhost/db", /postgres:\/\//],
    ["DATABASE_URL", "localhost", /postgres:\/\//],
    ["REDIS_URL", "http://localhost", /redis:\/\//],
    ["OPERATOR_KEY", "too-short", /24/],
    ["OPERATOR_KEY", "long enough but with spaces in it", /without spaces/],
    ["DOCS_BASE_URL", "docs.example.com", /https:\/\//],
    ["LOG_LEVEL", "loud", /info.*debug/],
  ])("%s=%s", async (variable, value, expected) => {
    const { sandbox, failure } = await fail({ [variable]: value });
    expectUserError(failure, variable, expected);
    expect(existsSync(sandbox.dataDir), "nothing was started").toBe(false);
  });

  test("all problems are reported at once", async () => {
    const bad = { LATCHKEY_HOST: "two words", HTTP_PORT: "x", GRPC_PORT: "x", DATABASE_URL: "x", REDIS_URL: "x" };
    const alsoBad = { OPERATOR_KEY: "x", DOCS_BASE_URL: "x", LOG_LEVEL: "x" };
    const { failure } = await fail({ ...bad, ...alsoBad });
    expectUserError(failure, ...Object.keys({ ...bad, ...alsoBad }));
  });

  test("HTTP_PORT and GRPC_PORT that are the same", async () => {
    const port = `${await unusedPort()}`;
    const { failure } = await fail({ HTTP_PORT: port, GRPC_PORT: port });
    expectUserError(failure, "HTTP_PORT", "GRPC_PORT", /differ/);
  });

  test("a secret is not repeated in the message", async () => {
    const secrets = { OPERATOR_KEY: "my secret", DATABASE_URL: "mysql://me:my-secret@localhost/db" };
    const { failure } = await fail({ ...secrets, REDIS_URL: "http://:my-secret@localhost" });
    expectUserError(failure, "OPERATOR_KEY", "DATABASE_URL", "REDIS_URL");
    expect(failure.stderr).not.toMatch(/my.secret/);
  });
});

describe("a value that turns out to be unusable at the start is reported by name, too:", () => {
  test("HOST that is not an address of this machine", async () => {
    // 192.0.2.0/24 is reserved for documentation: no machine has such an address.
    const { failure } = await fail({ HOST: "192.0.2.1", ...(await database()) });
    expectUserError(failure, "HOST", "192.0.2.1");
  });

  test("LATCHKEY_HOST that does not resolve", async () => {
    const { failure } = await fail({ LATCHKEY_HOST: "no-such-host.invalid", ...(await database()) });
    expectUserError(failure, "HOST", "no-such-host.invalid");
  });

  test("DATA_DIR that is a file", async () => {
    const sandbox = makeSandbox();
    writeFileSync(sandbox.dataDir, "not a folder");
    const { failure } = await fail({}, sandbox);
    expectUserError(failure, "DATA_DIR", sandbox.dataDir);
  });

  test("DATA_DIR inside a path where no folder can be created", async () => {
    const { failure } = await fail({ DATA_DIR: "/dev/null/data" });
    expectUserError(failure, "DATA_DIR", "/dev/null/data");
  });

  test("DATABASE_URL that refuses connections, within a few seconds", async () => {
    const startedAt = Date.now();
    await fail({ LATCHKEY_HOST: "two words" }); // measures how long a start that fails immediately takes on this machine
    const began = Date.now();
    const url = `postgres://me:my-secret@127.0.0.1:${await unusedPort()}/db`;
    const { failure } = await fail({ DATABASE_URL: url, OPERATOR_KEY: operatorKey });
    expectUserError(failure, "DATABASE_URL");
    expect(failure.stderr).not.toContain("my-secret");
    expect(Date.now() - began).toBeLessThan(2 * (began - startedAt) + 10_000);
  });

  test("DATABASE_URL with a host that does not resolve", async () => {
    const url = "postgres://me:my-secret@no-such-host.invalid/db";
    const { failure } = await fail({ DATABASE_URL: url, OPERATOR_KEY: operatorKey });
    expectUserError(failure, "DATABASE_URL");
    expect(failure.stderr).not.toContain("my-secret");
  });

  test("DATABASE_URL with a wrong password", async () => {
    const url = new URL(await freshDatabase());
    url.password = "my-secret";
    const { failure } = await fail({ DATABASE_URL: url.href, OPERATOR_KEY: operatorKey });
    expectUserError(failure, "DATABASE_URL");
    expect(failure.stderr).not.toContain("my-secret");
  });

  test("DATABASE_URL with a database that does not exist", async () => {
    const url = new URL(await freshDatabase());
    url.pathname = "/no_such_database";
    const { failure } = await fail({ DATABASE_URL: url.href, OPERATOR_KEY: operatorKey });
    expectUserError(failure, "DATABASE_URL", "no_such_database");
  });
});

describe("secrets from files", () => {
  test("are used by a service, by its workers and by commands, and neither printed nor in the environment", async () => {
    const sandbox = makeSandbox();
    const databaseUrl = await freshDatabase();
    const files = {
      DATABASE_URL_FILE: join(sandbox.folder, "database.url"),
      LATCHKEY_OPERATOR_KEYS_FILE: join(sandbox.folder, "operators"),
    };
    writeFileSync(files.DATABASE_URL_FILE, `${databaseUrl}\n`, { mode: 0o600 });
    writeFileSync(files.LATCHKEY_OPERATOR_KEYS_FILE, `alice:${operatorKey}\nbob:${operatorKey}2\n`, { mode: 0o600 });
    const command = [process.execPath, join(project, "dist/src/main.js"), "migrate"] as const;
    const migrated = await waitForExit(launch(sandbox, { set: files, command: [...command] }));
    expect(migrated).toMatchObject({ code: 0, stderr: "" });

    const service = await start(sandbox, { set: { ...files, WORKERS: "2" } });
    expect(service.stdout()).toMatch(/Operator key +from OPERATOR_KEYS\n/);
    for (const credential of [operatorKey, `${operatorKey}2`]) {
      expect(await call(service, "/v2/workspaces.listWorkspaces", credential)).toMatchObject({ status: 200, data: [] });
    }
    const output = service.stdout() + service.stderr() + migrated.stdout;
    for (const secret of [operatorKey, databaseUrl, new URL(databaseUrl).password])
      expect(output).not.toContain(secret);
  });

  test("that cannot be read are reported by variable and path", async () => {
    const { sandbox, failure } = await fail({ OPERATOR_KEY_FILE: "/no/such/file" });
    expectUserError(failure, "OPERATOR_KEY_FILE", "/no/such/file");
    expect(existsSync(sandbox.dataDir), "nothing was started").toBe(false);
  });
});

test("a shell's HOST, the name of the machine, neither prevents the start nor opens the service to a network", async () => {
  const service = await start(makeSandbox(), { set: { HOST: hostname(), ...(await database()) } });
  expect(service.httpUrl).toMatch(/^http:\/\/127\.0\.0\.1:/);
});

describe("the printed addresses are reachable when the service listens on", () => {
  test.for(["localhost", "0.0.0.0", "::1", "::"])("HOST=%s", async (HOST, ctx) => {
    if (HOST.includes(":") && !(await hasIpv6())) skipTest(ctx, "this machine has no IPv6");
    const set = { HOST, ...(await database()) };
    const service = await start(makeSandbox(), { set });
    expect(await call(service, "/v2/workspaces.listWorkspaces", operatorKey)).toMatchObject({ status: 200, data: [] });
    const { hostname: host, port } = new URL(`http://${service.grpcAddress}`);
    await expect(connects(Number(port), host.replace(/^\[|\]$/g, ""))).resolves.toBe(true);
  });
});

const operatorKey = "operator-credential-of-the-start-tests";

async function hasIpv6(): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(false));
    server.listen(0, "::1", () => server.close(() => resolve(true)));
  });
}

function connects(port: number, host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    socket.once("connect", () => resolve(true));
    socket.once("error", () => resolve(false));
    onTestFinished(() => void socket.destroy());
  });
}

/** Launches with these variables, waits for the expected failure, and checks that no process remains. */
async function fail(set: Record<string, string>, sandbox: Sandbox = makeSandbox()) {
  const launched = launch(sandbox, { set });
  const failure = await waitForExit(launched);
  expect(await remainingProcesses([], sandbox.folder)).toEqual([]);
  return { sandbox, failure };
}

/** The variables of a service on a new database. */
async function database() {
  return { DATABASE_URL: await freshDatabase(), OPERATOR_KEY: operatorKey };
}

async function freshDatabase(): Promise<string> {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  return database.url;
}
