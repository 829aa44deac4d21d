import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, onTestFinished, test } from "vitest";
import { createDatabase } from "../support/harness.js";
import { copyInstallation } from "./copies.js";
import { call, makeSandbox, project, start, stop, unusedPort } from "./service.js";

const operatorKey = "operator-credential-of-the-image-test";

test("what `npm ci --omit=dev --omit=optional` installs, with a built dist, serves as a user who can write nothing", async () => {
  const database = await createDatabase();
  onTestFinished(() => database.drop());
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
        DATABASE_URL: database.url,
        REDIS_URL: inject("redisUrl"),
        OPERATOR_KEY: operatorKey,
        METRICS_PORT: metricsPort,
      },
    },
  );
  expect(await call(service, "/v2/workspaces.listWorkspaces", operatorKey)).toMatchObject({ status: 200, data: [] });

  expect(healthCheck(metricsPort), "the health check of the image succeeds").toBe(0);
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(healthCheck(metricsPort), "without the service, it fails").toBe(1);
});

/** The exit status of the Dockerfile's health check. */
function healthCheck(metricsPort: string): number | null {
  const dockerfile = readFileSync(join(project, "deploy/Dockerfile"), "utf8");
  const [program, ...args] = JSON.parse(/HEALTHCHECK .*\n +CMD (\[.*\])/.exec(dockerfile)?.[1] ?? "[]");
  return spawnSync(program, args, { env: { PATH: process.env["PATH"], METRICS_PORT: metricsPort } }).status;
}
