import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { hasCurl, needsCurl } from "../support/skip.js";

const run = promisify(execFile);

/** The documents with commands to paste, and the output that a reader sees. */
const documents: Readonly<Record<string, readonly (readonly [guarantee: string, expected: RegExp])[]>> = {
  "README.md": [
    ["verifies a new key", /"valid":true,"code":"VALID","keyId":"key_\w+","name":"customer 7"/],
    ["disables it", /"name":"customer 7","enabled":false/],
    ["sees it refused", /"data":\{"valid":false,"code":"DISABLED","keyId":"key_\w+","name":"customer 7"/],
    ["verifies a key over gRPC", /"valid": true,\s+"code": "VERIFICATION_CODE_VALID"/],
    ["verifies a key over Connect", /"valid":true,"code":"VERIFICATION_CODE_VALID"/],
    ["verifies a key on the command line", /CODE +VALID\nKEY ID +key_\w+\nNAME +first key/],
  ],
  "docs/tutorial.md": [
    [
      "sees the first key, without its secret",
      /"name":"first key","enabled":true,"scopes":\["\*"\],"permissions":\[\]/,
    ],
    ["creates an identity", /"data":\{"identityId":"id_\w{26}"\}/],
    ["finds it by externalId", /"externalId":"user_42","meta":\{"plan":"pro"\}/],
    ["sees that identifiers are case-sensitive", /errors-v2\/service\/data\/identity_not_found/],
    ["is refused with a key that lacks the scope", /lacks the scope `keys\.read`/],
    ["disables the workspace with a reason", /"disabledReason":"UNPAID_BILLING","disabledNote":"invoice 1207"/],
    ["sees its key refused at once", /errors-v2\/service\/authorization\/workspace_disabled/],
    ["enables the workspace again", /"name":"My first workspace","enabled":true/],
    ["creates another workspace", /"data":\{"workspaceId":"ws_\w+","keyId":"key_\w+","key":"lk_\w+"\}/],
    ["verifies a key against a permission query", /"valid":true,"code":"VALID","keyId":"key_\w+","name":"ci"/],
    ["sees that a key lacks a permission", /"valid":false,"code":"INSUFFICIENT_PERMISSIONS"/],
    [
      "renames a key and clears its meta",
      /"start":"acme_\w{4}","name":"build server","enabled":true,"scopes":\[\],"permissions":\["documents\.\*"\],"identity"/,
    ],
    ["rerolls a key", /"data":\{"keyId":"key_\w+","key":"acme_\w+"\}/],
    ["sees when the key was last used", /"name":"build server",.*"lastUsedAt":\d{13}/],
    ["sees in the audit who deleted the key", /"type":"key\.delete","actor":"key_\w+"/],
    ["lists the RPCs over gRPC", /latchkey\.v1\.KeysService\/ListKeys/],
    ["finds the identity over gRPC", /"externalId": "user_42"/],
    ["checks the health", /"status": "SERVING"/],
    ["finds the identity over Connect", /\{"identity":\{"identityId":"id_\w{26}","externalId":"user_42"/],
  ],
  "docs/guides/cli.md": [
    ["lists workspaces on the command line", /ws_\w+ +My first workspace +enabled/],
    ["creates a key on the command line", /KEY ID +key_\w+\nKEY +lk_\w+/],
  ],
  "docs/guides/idempotent-retries.md": [
    [
      "retries, and gets the first response again",
      /"data":(\{"keyId":"key_\w+","key":"lk_\w+"\})\}\s*\{"meta":\{"requestId":"req_\w+"\},"data":\1/,
    ],
  ],
  "docs/guides/protect-your-api.md": [
    ["is asked for a key", /HTTP\/1\.1 401 .*www-authenticate: Bearer realm="api"\r\n.*"code":"MISSING"/s],
    ["is served with a key", /\{"readBy":"key_\w+"\}/],
    ["disables the key", /"name":"customer 7","enabled":false/],
    [
      "sees it refused at once",
      /"enabled":false.*HTTP\/1\.1 401 .*Bearer realm="api", error="invalid_token"\r\n.*"code":"DISABLED"/s,
    ],
  ],
  "docs/guides/limits-and-credits.md": [
    ["uses up a rate limit", /"remaining":1,.*"remaining":0,.*"code":"RATE_LIMITED"/s],
    ["gives limits a cost", /"name":"tokens",[^}]*"remaining":750,.*"name":"uploads",[^}]*"remaining":4,/],
    ["shares the limit of an identity between its keys", /^2\n1\n0$/m],
    ["limits an identifier", /"success":true,"limit":1,"remaining":0,.*"success":false,"limit":1,"remaining":0,/s],
    ["overrides the limit of some identifiers", /"success":true,"limit":500,"remaining":499,.*"overrideId":"ovr_\w+"/],
    ["spends credits", /"code":"VALID",.*"credits":1\b.*"code":"USAGE_EXCEEDED",.*"credits":1\b/s],
    ["adds credits", /"data":\{"remaining":11,"refill":\{"interval":"monthly","amount":1000,"refillDay":31\}\}/],
    [
      "does the same on the command line",
      /KEY +lk_\w+\nCREDITS +10\nREFILL +1000\/monthly:31\nRESULT +within the limit/,
    ],
    ["lists overrides on the command line", /email\.send +premium_\* +500\/1h/],
  ],
  "docs/guides/apis-roles-and-usage.md": [
    ["lists the keys of an API", /"name":"of payments","enabled":true/],
    ["deletes an API and its keys", /^VALID\n\{"meta":\{"requestId":"req_\w+"\},"data":\{\}\}\nNOT_FOUND$/m],
    ["changes a role, and its keys", /^VALID\n.*"slug":"documents\.read".*\nINSUFFICIENT_PERMISSIONS$/m],
    ["changes the permissions of a key", /"slug":"reports\.print"/],
    ["counts verifications of a key and of an identity", /"total":3,"valid":3,.*"total":2,"valid":2,/s],
    ["imports a key", /"data":\{"migrated":\[\{"hash":"\S+","keyId":"key_\w+"\}\],"failed":\[\]\}\}\nVALID$/m],
    ["shows usage on the command line", /^TIME +TOTAL +VALID.*\n20\S+ +3 +3 /m],
    ["sees that an imported key exists", /exists already\nexists already$/m],
  ],
  "docs/guides/coming-from-unkey.md": [
    ["creates and verifies a key with Unkey's client", /^VALID 999 99$/m],
    [
      "imports a key by its hash, and verifies it by its old secret",
      /^1 imported, 0 existed\nVALID customer 7 user_7$/m,
    ],
    ["creates a root key", /"data":\{"keyId":"key_\w+","key":"lk_\w+"\}/],
  ],
  "docs/guides/generate-stubs.md": [["reads what an operation does in the OpenAPI document", /^Returns one key$/m]],
};

let dataDir: string;
let service: ChildProcess;
let banner: string;

beforeAll(async () => {
  if (!hasCurl) return;
  dataDir = mkdtempSync(join(tmpdir(), "latchkey-readme-"));
  const path = process.env["PATH"];
  const env = { PATH: path, HOME: dataDir, DATA_DIR: dataDir, HTTP_PORT: "0", GRPC_PORT: "0" };
  service = spawn("node", ["dist/src/main.js"], { env, stdio: ["ignore", "pipe", "ignore"] });
  banner = await readBanner(service);
});

afterAll(async () => {
  if (!hasCurl) return;
  service.kill("SIGTERM");
  await once(service, "exit");
  rmSync(dataDir, { recursive: true, force: true });
});

it("every document with commands to paste is tested", () => {
  const pages = readdirSync("docs", { recursive: true, encoding: "utf8" }).map((file) => `docs/${file}`);
  const found = ["README.md", ...pages].filter((file) => file.endsWith(".md") && blocksOf(file).length > 0);
  expect(found.sort()).toEqual(Object.keys(documents).sort());
});

// In sequence, on one service: the README comes first, and the tutorial continues from there.
describe.each(Object.entries(documents))("a newcomer who pastes the commands of %s", (document, guarantees) => {
  let output: string;

  beforeAll(async () => {
    if (!hasCurl) return;
    const grpcAddress = /gRPC +(\S+)/.exec(banner)?.[1] ?? "";
    const freePort = await findFreePort();
    const commandLine = { DATA_DIR: dataDir, LATCHKEY_ADDRESS: grpcAddress };
    output = await paste(
      blocksOf(document).join("\n"),
      { ...process.env, ...commandLine },
      {
        "http://127.0.0.1:8080": /http:\S+/.exec(banner)?.[0] ?? "",
        "127.0.0.1:50051": grpcAddress,
        ".latchkey": dataDir,
        // The reader's own server.
        "127.0.0.1:3000": `127.0.0.1:${freePort}`,
        "port: 3000": `port: ${freePort}`,
      },
    );
  });

  it.for(guarantees)("%s", ([, expected], context) => {
    needsCurl(context);
    expect(output).toMatch(expected);
  });
});

/** The code blocks that a newcomer pastes, in order: commands, and files to save. */
function blocksOf(document: string): string[] {
  const blocks = readFileSync(document, "utf8").matchAll(/<!-- (walk|file: (\S+)) -->\n```\w+\n(.*?)```/gs);
  return [...blocks].map(([, , file, block = ""]) =>
    file === undefined ? block : `cat > ${file} <<'END_OF_FILE'\n${block}END_OF_FILE\n`,
  );
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Runs commands in one shell session, with the addresses of this test's service instead of the documented ones. */
async function paste(commands: string, env: NodeJS.ProcessEnv, replacements: Record<string, string>): Promise<string> {
  const pasted = Object.entries(replacements).reduce((text, [from, to]) => text.replaceAll(from, to), commands);
  // A server that is started in the background must not outlive a failed command.
  const script = `trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n${pasted}`;
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
  throw new Error(`the service exited before it was ready: ${banner}`);
}
