import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { hasCurl, needsCurl } from "./left-out.js";

const readme = readFileSync("README.md", "utf8");
const run = promisify(execFile);

/** The walk's blocks, in their order: what a newcomer pastes. */
const walk = [...readme.matchAll(/<!-- walk -->\n```sh\n(.*?)```/gs)].map(([, block]) => block ?? "");

describe("a newcomer who pastes the README's walk", () => {
  let dataDir: string;
  let service: ChildProcess;
  let output: string;

  beforeAll(async () => {
    if (!hasCurl) return;
    dataDir = mkdtempSync(join(tmpdir(), "latchkey-readme-"));
    const path = process.env["PATH"];
    const env = { PATH: path, HOME: dataDir, DATA_DIR: dataDir, HTTP_PORT: "0", GRPC_PORT: "0" };
    service = spawn("node", ["dist/src/main.js"], { env, stdio: ["ignore", "pipe", "ignore"] });
    const banner = await readBanner(service);
    const grpcAddress = /gRPC +(\S+)/.exec(banner)?.[1] ?? "";
    const commandLine = { DATA_DIR: dataDir, LATCHKEY_ADDRESS: grpcAddress };
    output = await paste(
      walk.join("\n"),
      { ...process.env, ...commandLine },
      {
        "http://127.0.0.1:8080": /http:\S+/.exec(banner)?.[0] ?? "",
        "127.0.0.1:50051": grpcAddress,
        ".latchkey": dataDir,
      },
    );
  });

  afterAll(async () => {
    if (!hasCurl) return;
    service.kill("SIGTERM");
    await once(service, "exit");
    rmSync(dataDir, { recursive: true, force: true });
  });

  it.for([
    [
      "sees the first key, without its secret",
      /"name":"first key","enabled":true,"scopes":\["\*"\],"permissions":\[\]/,
    ],
    ["makes an identity", /"data":\{"identityId":"id_\w{26}"\}/],
    ["finds it by externalId", /"externalId":"user_42","meta":\{"plan":"pro"\}/],
    ["learns that letter case counts", /errors-v2\/service\/data\/identity_not_found/],
    ["is refused with a key that lacks the scope", /lacks the scope `keys\.read`/],
    ["disables the workspace with a reason", /"disabledReason":"UNPAID_BILLING","disabledNote":"invoice 1207"/],
    ["sees its key refused at once", /errors-v2\/service\/authorization\/workspace_disabled/],
    ["enables the workspace again", /"name":"My first workspace","enabled":true/],
    ["makes another workspace", /"data":\{"workspaceId":"ws_\w+","keyId":"key_\w+","key":"lk_\w+"\}/],
    ["verifies a key against a query of permissions", /"valid":true,"code":"VALID","keyId":"key_\w+","name":"ci"/],
    ["reads what an operation does in the OpenAPI document", /^Finds one key$/m],
    ["learns that a key lacks a permission", /"valid":false,"code":"INSUFFICIENT_PERMISSIONS"/],
    [
      "renames a key and clears its meta",
      /"start":"acme_\w{4}","name":"build server","enabled":true,"scopes":\[\],"permissions":\["documents\.\*"\],"identity"/,
    ],
    ["rerolls a key", /"data":\{"keyId":"key_\w+","key":"acme_\w+"\}/],
    [
      "tries again, and gets the first answer again",
      /"data":(\{"keyId":"key_\w+","key":"lk_\w+"\})\}\s*\{"meta":\{"requestId":"req_\w+"\},"data":\1/,
    ],
    ["sees in the audit who deleted the key", /"type":"key\.delete","actor":"key_\w+"/],
    ["lists workspaces on the command line", /ws_\w+ +My first workspace +enabled/],
    ["makes a key on the command line", /KEY ID +key_\w+\nKEY +lk_\w+/],
    ["lists the RPCs over gRPC", /latchkey\.v1\.KeysService\/ListKeys/],
    ["finds the identity over gRPC", /"externalId": "user_42"/],
    ["asks for its health", /"status": "SERVING"/],
    ["finds the identity over Connect", /\{"identity":\{"identityId":"id_\w{26}","externalId":"user_42"/],
  ] as const)("%s", ([, expected], context) => {
    needsCurl(context);
    expect(output).toMatch(expected);
  });
});

/** Runs commands as one shell session, with the addresses of this test's service in place of the documented ones. */
async function paste(commands: string, env: NodeJS.ProcessEnv, replacements: Record<string, string>): Promise<string> {
  const script = Object.entries(replacements).reduce((text, [from, to]) => text.replaceAll(from, to), commands);
  const { stdout } = await run("bash", ["-euo", "pipefail", "-c", script], { env, timeout: 60_000 });
  return stdout;
}

async function readBanner(service: ChildProcess): Promise<string> {
  if (service.stdout === null) throw new Error("the service has no standard output");
  let banner = "";
  for await (const line of createInterface(service.stdout)) {
    banner += `${line}\n`;
    if (line.startsWith("Ctrl-C")) return banner;
  }
  throw new Error(`the service ended before it was ready: ${banner}`);
}
