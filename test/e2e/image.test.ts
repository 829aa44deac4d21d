import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, onTestFinished, test } from "vitest";
import { createDatabase } from "../support/harness.js";
import { openProxy } from "../support/proxy.js";
import { copyInstallation } from "./copies.js";
import { call, makeSandbox, project, start, stop, unusedPort } from "./service.js";

const operatorKey = "operator-credential-of-the-image-test";

test("what `npm ci --omit=dev --omit=optional` installs, with a built dist, serves as a user who can write nothing", async () => {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
  // Other users cannot access the sockets of the tests' backends.
  const [postgres, redis] = await Promise.all([openProxy(database.url), openProxy(inject("redisUrl"))]);
  onTestFinished(() => Promise.all([postgres.close(), redis.close()]).then(() => {}));
  const sandbox = makeSandbox();
  const app = join(sandbox.folder, "app");
  copyInstallation(app, { embedded: false });
  // Not root, so it can write neither its own folder, which belongs to this process, nor a home or temporary folder.
  const user = process.getuid?.() === 0 ? { user: { uid: 65_534, gid: 65_534 } } : {};
  const metricsPort = String(await unusedPort());
  const { DATA_DIR: _, HOME: __, TMPDIR: ___, ...environment } = sandbox.environment;
  const service = await start(
    { ...sandbox, environment },
    {
      command: [process.execPath, "dist/src/main.js"],
      cwd: app,
      ...user,
      set: {
        DATABASE_URL: postgres.url,
        REDIS_URL: redis.url,
        OPERATOR_KEY: operatorKey,
        METRICS_PORT: metricsPort,
      },
    },
  );
  expect(await call(service, "/v2/workspaces.listWorkspaces", operatorKey)).toMatchObject({ status: 200, data: [] });

  const image = { HOST: "0.0.0.0", METRICS_PORT: metricsPort };
  const prefixed = { ...image, METRICS_PORT: "1", LATCHKEY_METRICS_PORT: metricsPort };
  expect(await healthCheck(image), "the health check of the image succeeds").toBe(0);
  expect(await healthCheck(prefixed), "also with a prefixed variable").toBe(0);
  expect(await healthCheck({ ...image, METRICS_HOST: "::1" }), "it asks METRICS_HOST, where nothing listens").toBe(1);
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await healthCheck(image), "without the service, it fails").toBe(1);
});

/** The exit status of the Dockerfile's health check, with these variables. */
async function healthCheck(variables: Record<string, string>): Promise<number | null> {
  const dockerfile = readFileSync(join(project, "deploy/Dockerfile"), "utf8");
  const [program, ...args] = JSON.parse(/HEALTHCHECK .*\n +CMD (\[.*\])/.exec(dockerfile)?.[1] ?? "[]");
  const env = { PATH: process.env["PATH"], ...variables };
  const [status] = await once(spawn(program, args, { env, stdio: "ignore" }), "exit");
  return status;
}
