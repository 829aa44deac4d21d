import { execFile, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, it } from "vitest";
import { skipTest } from "../../support/skip.js";

const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), "latchkey-deploy-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs a part of `npm run check:deploy` on a copy with one text of one file replaced, and returns what it prints. */
async function problemsWith(part: string, file: string, from: string, to: string): Promise<string> {
  const copy = mkdtempSync(join(folder, "copy-"));
  for (const name of readdirSync(".")) {
    if (["deploy", "package.json", ".dockerignore"].includes(name)) cpSync(name, join(copy, name), { recursive: true });
    else if (name !== "third_party") symlinkSync(resolve(name), join(copy, name));
  }
  const text = readFileSync(join(copy, file), "utf8");
  expect(text).toContain(from);
  writeFileSync(join(copy, file), text.replace(from, to));
  return run("node", ["scripts/check-deploy.mjs", part], { cwd: copy }).then(
    () => "",
    ({ stderr }: { stderr: string }) => stderr,
  );
}

const dockerfile = "deploy/Dockerfile";
const compose = "deploy/compose/compose.yaml";
const chart = "deploy/helm/latchkey";
const deployment = `${chart}/templates/deployment.yaml`;
const unit = "deploy/systemd/latchkey.service";

/** The part of the check that a file belongs to. */
function partOf(file: string): string {
  const [, part] = /^deploy\/(compose|helm|systemd)\//.exec(file) ?? [];
  return { compose: "compose", helm: "chart", systemd: "unit" }[part ?? ""] ?? "dockerfile";
}

describe("npm run check:deploy", () => {
  it("accepts the files as they are", async () => {
    await run("npm", ["run", "check:deploy"]);
  });

  it.for([
    ["an unknown instruction", dockerfile, "WORKDIR", "WORKDIRECTORY", "Unknown instruction"],
    ["an image without a version", dockerfile, "node:24-bookworm-slim", "node", "needs a version"],
    ["a file to copy that does not exist", dockerfile, "COPY gen gen", "COPY generated gen", "no such file"],
    ["a file to copy that the context excludes", ".dockerignore", "!gen\n", "", "excludes it"],
    ["a context with all files", ".dockerignore", "*\n", "node_modules\n", "must exclude everything"],
    [
      "a package of a workspace that is not copied",
      dockerfile,
      "COPY client/package.json client/\n",
      "",
      "COPY client/package.json",
    ],
    ["root as the user", dockerfile, "USER 1000:1000", "USER root", "USER must be"],
    ["a health check with curl", dockerfile, '"node", "-e"', '"curl"', "must not need curl"],
    [
      "an entry point in a shell",
      dockerfile,
      '["node", "dist/src/main.js"]',
      "node dist/src/main.js",
      "receives signals",
    ],
    [
      "a variable of the image that does not exist",
      dockerfile,
      "METRICS_PORT=9464",
      "METRIC_PORT=9464",
      "METRIC_PORT is not a setting",
    ],
    ["a port that the service does not open", dockerfile, "METRICS_PORT=9464", "METRICS_PORT=9465", "EXPOSE must be"],
    ["a key that Compose does not know", compose, "read_only:", "readonly:", "additional properties"],
    [
      "a variable in Compose that does not exist",
      compose,
      "SHUTDOWN_DELAY_MS",
      "SHUTDOWN_DELAY",
      "SHUTDOWN_DELAY is not a setting",
    ],
    ["a value in Compose that the service refuses", compose, '"5000"', '"5s"', "SHUTDOWN_DELAY_MS must be"],
    ["too little time to stop in Compose", compose, "stop_grace_period: 30s", "stop_grace_period: 10s", "at least 17s"],
    [
      "a published database",
      compose,
      "image: postgres:18\n",
      'image: postgres:18\n    ports: ["127.0.0.1:5432:5432"]\n',
      "not postgres",
    ],
    [
      "a load balancer that uses another port",
      "deploy/compose/haproxy.cfg",
      "latchkey:50051",
      "latchkey:50052",
      "latchkey:50051 proto h2",
    ],
    ["a template that does not end", deployment, "{{- end }}", "", "end is missing"],
    [
      "a value that values.yaml does not have",
      deployment,
      ".Values.replicas",
      ".Values.replica",
      "is not in values.yaml",
    ],
    ["a field that Kubernetes does not know", deployment, "replicas:", "replica:", `'"replica"' does not exist`],
    ["a field with a wrong type", deployment, 'value: "8080"', "value: 8080", "not assignable to type 'string'"],
    [
      "a variable in the chart that does not exist",
      deployment,
      "name: GRPC_PORT",
      "name: GRPCPORT",
      "GRPCPORT is not a setting",
    ],
    ["a probe of a port that does not exist", deployment, "port: metrics", "port: probes", "no port probes"],
    ["too little time to stop in the chart", deployment, "20 }}", "1 }}", "at least 22"],
    [
      "a selector that matches no Pod",
      `${chart}/templates/poddisruptionbudget.yaml`,
      'include "latchkey.selector" . | nindent 6',
      '"app: other" | nindent 6',
      "does not match the Pods",
    ],
    [
      "a ServiceMonitor that matches no Service",
      `${chart}/templates/servicemonitor.yaml`,
      "component: metrics",
      "component: other",
      "matches no Service",
    ],
    [
      "a chart of another version",
      `${chart}/Chart.yaml`,
      "appVersion: 0.1.0",
      "appVersion: 0.0.1",
      "appVersion must be",
    ],
    ["an optional Secret", deployment, "required ", "default ", "must fail"],
    [
      "a chart that requires the credential of one operator",
      deployment,
      "key: OPERATOR_KEY\n                  optional: true\n",
      "key: OPERATOR_KEY\n",
      "a Secret with DATABASE_URL, OPERATOR_KEYS needs OPERATOR_KEY, too",
    ],
    [
      "a chart without the credentials of several operators",
      deployment,
      "key: OPERATOR_KEYS\n",
      "key: OPERATORS\n",
      "DATABASE_URL needs an OPERATOR_KEY",
    ],
    [
      "a variable of the unit that does not exist",
      unit,
      "WorkingDirectory",
      "Environment=LOGLEVEL=info\nWorkingDirectory",
      "LOGLEVEL is not a setting",
    ],
    [
      "a variable of the environment file that does not exist",
      "deploy/systemd/latchkey.env.example",
      "HOST=",
      "HOSTNAME=",
      "HOSTNAME is not a setting",
    ],
    ["too little time to stop in the unit", unit, "TimeoutStopSec=30s", "TimeoutStopSec=15s", "at least 17s"],
  ] as const)("reports %s", async ([, file, from, to, problem]) => {
    expect(await problemsWith(partOf(file), file, from, to)).toContain(problem);
  });
});

describe("the systemd unit", () => {
  const analyze = (...args: string[]) => spawnSync("systemd-analyze", args, { encoding: "utf8" });
  const isInstalled = analyze("--version").status === 0;

  it("is valid, and has a low exposure by the rating of systemd", (context) => {
    if (!isInstalled) skipTest(context, "systemd-analyze is not installed on this machine");
    // Node may be elsewhere on this machine.
    const copy = join(folder, "latchkey.service");
    writeFileSync(copy, readFileSync(unit, "utf8").replace("/usr/bin/node", process.execPath));
    const verified = analyze("verify", copy);
    expect(verified.stderr).not.toMatch(/latchkey\.service/);
    expect(verified.status).toBe(0);
    // In tenths of its scale from 0 (best) to 10.
    const rated = analyze("security", "--offline=true", "--threshold=20", copy);
    expect(rated.status, rated.stdout).toBe(0);
  });
});

describe("the load balancer", () => {
  it("has a configuration that HAProxy accepts", (context) => {
    if (spawnSync("haproxy", ["-v"]).status !== 0) skipTest(context, "haproxy is not installed on this machine");
    const { status, stderr } = spawnSync("haproxy", ["-c", "-f", "deploy/compose/haproxy.cfg"], { encoding: "utf8" });
    expect(status, stderr).toBe(0);
  });
});
