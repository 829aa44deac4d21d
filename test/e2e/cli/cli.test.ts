import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openFileApp } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";
import { commandLine, latchkey } from "./command-line.js";

const app = await openFileApp();

/** Creates a workspace, and the command line with its first key. */
async function createWorkspace(name = "Acme") {
  const operator = commandLine(app);
  const { workspaceId, key } = await operator.json("workspace", "create", name);
  return { operator, workspaceId, key, member: commandLine(app, key) };
}

describe("the CLI with the operator credential", () => {
  it("creates a workspace, finds it, disables it with a reason and enables it again", async () => {
    const { operator, workspaceId, member } = await createWorkspace("Tyrell");
    expect((await operator.run("workspace", "list")).stdout).toMatch(new RegExp(`${workspaceId} +Tyrell +enabled`));

    const args = ["workspace", "disable", workspaceId, "--reason", "quota-exceeded", "--note", "again"];
    const { workspace } = await operator.json(...args);
    expect(workspace).toMatchObject({ enabled: false, disabledReason: "DISABLED_REASON_QUOTA_EXCEEDED" });
    const refused = await member.run("key", "list");
    expect(refused.exitCode).toBe(3);
    expect(refused.stderr).toMatch(
      /^error: The workspace .* disabled\. \(authorization\/workspace_disabled, req_\w+\)\n$/,
    );

    expect((await operator.run("workspace", "enable", workspaceId)).stdout).toMatch(/STATE +enabled/);
    expect((await member.run("key", "list")).exitCode).toBe(0);
    expect((await operator.run("workspace", "get", workspaceId)).stdout).toMatch(/NAME +Tyrell/);
  });

  it("renames a workspace, and deletes it only while it is disabled", async () => {
    const { operator, workspaceId, member } = await createWorkspace("Tyrell");
    const renamed = await operator.run("workspace", "update", workspaceId, "--name", "Wallace");
    expect(renamed.stdout).toMatch(/NAME +Wallace/);
    const refused = await operator.run("workspace", "delete", workspaceId);
    expect(refused).toMatchObject({ exitCode: 5, stderr: expect.stringContaining("data/workspace_enabled") });
    await operator.run("workspace", "disable", workspaceId, "--reason", "account-closure");
    expect((await operator.run("workspace", "delete", workspaceId)).stdout).toBe("deleted\n");
    expect((await operator.run("workspace", "get", workspaceId)).exitCode).toBe(4);
    expect((await member.run("key", "list")).stderr).toContain("authentication/key_not_found");
  });

  it("creates a root key for a workspace whose only key is deleted", async () => {
    const { operator, member, workspaceId } = await createWorkspace();
    const [first] = (await member.json("key", "list")).keys;
    await member.run("key", "delete", first.keyId);
    expect((await member.run("key", "list")).exitCode).toBe(3);
    const args = ["--name", "spare", "--scope", "keys.read", "--scope", "keys.update"];
    const { keyId, key } = await operator.json("workspace", "create-root-key", workspaceId, ...args);
    const list = await commandLine(app, key).run("key", "list");
    expect(list.stdout).toMatch(new RegExp(`${keyId} +lk_\\w{4} +spare +enabled +keys.read, keys.update`));
    const printed = await operator.run("workspace", "create-root-key", workspaceId);
    expect(printed.stdout).toMatch(/^KEY ID +key_\w{26}\nKEY +lk_\w{39}\n$/);
    expect((await operator.run("workspace", "create-root-key", "ws_none")).exitCode).toBe(4);
  });

  it("lists audit events", async () => {
    const { operator, workspaceId } = await createWorkspace();
    const { stdout } = await operator.run("audit", "list", "--workspace", workspaceId);
    expect(stdout).toMatch(/^AT +TYPE +RESOURCE +ACTOR/);
    expect(stdout).toMatch(new RegExp(`workspace\\.create +${workspaceId} +operator`));
  });
});

describe("the CLI with a key of the workspace", () => {
  it("creates, lists, disables, enables, rerolls and deletes keys", async () => {
    const { member } = await createWorkspace();
    const scopes = ["--scope", "keys.read", "--scope", "keys.verify"];
    const args = [...scopes, "--permission", "documents.read", "--permission", "a:b", "--external-id", "user_1"];
    const { keyId, key } = await member.json("key", "create", "--name", "ci", "--prefix", "acme", ...args);
    expect(key).toMatch(/^acme_\w{39}$/);
    const list = await member.run("key", "list", "--external-id", "user_1");
    const names = "keys.read, keys.verify +documents.read, a:b";
    expect(list.stdout).toMatch(new RegExp(`${keyId} +acme_\\w{4} +ci +enabled +${names} +user_1`));

    expect((await member.run("key", "disable", keyId)).stdout).toMatch(/STATE +disabled/);
    expect((await member.json("key", "list", "--state", "disabled")).keys).toMatchObject([{ keyId }]);
    expect((await member.run("key", "enable", keyId)).stdout).toMatch(/STATE +enabled/);

    const rerolled = await member.json("key", "reroll", keyId, "--grace", "60000");
    expect(rerolled.key).toMatch(/^acme_\w{39}$/);
    expect((await member.run("key", "delete", keyId)).stdout).toBe("deleted\n");
    expect((await member.run("key", "get", keyId)).exitCode).toBe(4);
    expect((await member.run("key", "get", rerolled.keyId)).stdout).toMatch(/NAME +ci/);
  });

  it("a retry with the same Idempotency-Key creates nothing new", async () => {
    const { operator, member, workspaceId } = await createWorkspace();
    const creations = [
      { by: operator, args: ["workspace", "create", "Acme"] },
      { by: operator, args: ["workspace", "create-root-key", workspaceId] },
      { by: member, args: ["key", "create", "--name", "ci"] },
    ];
    for (const { by, args } of creations) {
      const withKey = [...args, "--idempotency-key", args.join(" ")];
      expect(await by.json(...withKey)).toEqual(await by.json(...withKey));
    }
    const conflict = ["key", "create", "--name", "other", "--idempotency-key", "key create --name ci"];
    expect(await member.run(...conflict)).toMatchObject({ exitCode: 5, stderr: expect.stringMatching(/conflict/) });
  });

  it("shows the key that it uses, or the key on standard input", async () => {
    const { member, key } = await createWorkspace();
    expect(await member.json("key", "whoami")).toMatchObject({ key: { name: "first key", scopes: ["*"] } });
    const { keyId, key: secret } = await member.json("key", "create", "--name", "ci");
    const shown = await member.runWith(`${secret}\n`, "key", "whoami", "--stdin");
    expect(shown).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(new RegExp(`^ID +${keyId}\n`)) });
    expect(shown.stdout).not.toContain(secret);
    expect(await member.runWith("lk_unknown", "key", "whoami", "--stdin")).toMatchObject({ exitCode: 4 });
    // A key needs a scope to see itself.
    const refused = await commandLine(app, secret).run("key", "whoami");
    expect(refused).toMatchObject({ exitCode: 3, stderr: expect.stringContaining("lacks the scope `keys.read`") });
    expect(refused.stderr).not.toContain(key);
  });

  it("creates keys that expire after a duration or at a time, and changes their expiry", async () => {
    const { member } = await createWorkspace();
    const before = Date.now();
    const { keyId } = await member.json("key", "create", "--expires", "30d");
    const { key } = await member.json("key", "get", keyId);
    const days = (Date.parse(key.expires) - before) / 86_400_000;
    expect(days).toBeGreaterThanOrEqual(30);
    expect(days).toBeLessThan(30.01);
    const updated = await member.json("key", "update", keyId, "--expires", "2100-01-31");
    expect(updated.key.expires).toBe("2100-01-31T00:00:00Z");
    expect(await member.run("key", "update", keyId, "--expires", "30")).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("such as 30d (units: s, m, h, d, w)"),
    });
  });

  it("verifies keys from standard input, with an exit code that scripts can use", async () => {
    const { member } = await createWorkspace();
    const { key } = await member.json("key", "create", "--permission", "documents.*");
    const valid = await member.runWith(key, "key", "verify", "--permissions", "documents.read OR admin");
    expect(valid).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/^CODE +VALID\n/) });
    const lacking = await member.runWith(key, "key", "verify", "--permissions", "admin");
    expect(lacking).toMatchObject({ exitCode: 8, stdout: expect.stringMatching(/^CODE +INSUFFICIENT_PERMISSIONS\n/) });
    expect(await member.runWith(`${key}\n`, "key", "verify", "--json")).toMatchObject({ exitCode: 0 });
    const unknown = await member.runWith("lk_nonsense", "key", "verify", "--json");
    expect(unknown.exitCode).toBe(8);
    expect(JSON.parse(unknown.stdout)).toMatchObject({ valid: false, code: "VERIFICATION_CODE_NOT_FOUND" });
    expect(await member.runWith(key, "key", "verify", "--permissions", "a AND")).toMatchObject({
      exitCode: 6,
      stderr: expect.stringContaining("at position 6"),
    });
  });

  it("creates, lists, updates and deletes identities", async () => {
    const { member } = await createWorkspace();
    const { identityId } = await member.json("identity", "create", "user_1", "--meta", '{"plan":"pro"}');
    expect((await member.run("identity", "create", "user_1")).exitCode).toBe(5);
    expect((await member.run("identity", "list", "--search", "USER")).stdout).toContain(`${identityId}  user_1`);
    expect((await member.json("identity", "update", "user_1", "--meta", '{"plan":"free"}')).identity.meta).toEqual({
      plan: "free",
    });
    expect((await member.run("identity", "delete", identityId)).exitCode).toBe(0);
    expect(await member.run("identity", "get", "user_1")).toMatchObject({
      exitCode: 4,
      stderr: expect.stringContaining("data/identity_not_found"),
    });
  });

  it("prints the cursor of the next page of a long list", async () => {
    const { member } = await createWorkspace();
    await member.json("key", "create");
    const first = await member.run("key", "list", "--limit", "1");
    const cursor = /--cursor (\S+)/.exec(first.stdout)?.[1] ?? "";
    expect((await member.run("key", "list", "--cursor", cursor)).stdout).not.toContain("More results");
  });
});

describe("invisible characters, and those that control a terminal, are printed as escapes", () => {
  /** ESC, CSI of C1, right-to-left override, zero-width space, soft hyphen, line separator, and a tag of two units. */
  const odd = "a\u001b[31m\u009b2J\u202e\u200b\u00ad\u2028\u{e0041}z";
  const escapes = "a\\u001b[31m\\u009b2J\\u202e\\u200b\\u00ad\\u2028\\udb40\\udc41z";
  const invisible = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

  it("in names, lists and meta, in tables and in JSON, which parses to the original", async () => {
    const { member } = await createWorkspace();
    const { keyId } = await member.json("key", "create", "--name", odd);
    await member.json("identity", "create", "user_1", "--meta", JSON.stringify({ [odd]: [odd] }));
    for (const args of [
      ["key", "get", keyId],
      ["key", "list"],
      ["identity", "get", "user_1"],
    ]) {
      for (const { stdout } of [await member.run(...args), await member.run(...args, "--json")]) {
        expect(stdout).not.toMatch(invisible);
        expect(stdout).toContain(escapes);
      }
    }
    expect((await member.json("key", "get", keyId)).key.name).toBe(odd);
    expect((await member.json("identity", "get", "user_1")).identity.meta).toEqual({ [odd]: [odd] });
  });

  it("in an error that repeats the input", async () => {
    const { member } = await createWorkspace();
    const { stderr } = await member.run("key", "create", "--permission", odd);
    expect(stderr).toMatch(/permissions\[0\]/);
    expect(stderr).not.toMatch(invisible);
  });
});

describe("errors have an exit code and a readable message", () => {
  it("wrong usage is 2", async () => {
    const { run } = commandLine(app);
    expect(await run("nonsense")).toMatchObject({ exitCode: 2, stderr: expect.stringContaining("unknown command") });
    expect(await run("workspace", "disable", "ws_1")).toMatchObject({ exitCode: 2 });
    expect(await run("workspace", "disable", "ws_1", "--reason", "mood")).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("unpaid-billing"),
    });
    expect(await run("key", "create", "--meta", "[]")).toMatchObject({ exitCode: 2 });
    expect(await run("key", "list", "--limit", "many")).toMatchObject({ exitCode: 2 });
    expect(await run("key", "list", "--state", "enable")).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("enabled, disabled"),
    });
    expect(await run("key", "create", "--expires", "soon")).toMatchObject({ exitCode: 2 });
  });

  it("help is 0, on standard output", async () => {
    const help = await latchkey(["key", "--help"]);
    expect(help).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("verify [options] ") });
  });

  it("the version is that of the package", async () => {
    const { version } = JSON.parse(readFileSync("package.json", "utf8"));
    expect(await latchkey(["--version"])).toMatchObject({ exitCode: 0, stdout: `${version}\n` });
  });

  it("the help of serve has all documented settings, with their defaults", async () => {
    const { exitCode, stdout } = await latchkey(["serve", "--help"]);
    expect(exitCode).toBe(0);
    const rows = readFileSync("docs/reference/configuration.md", "utf8").matchAll(/^\| (`[A-Z].*?) \| (.*?) \| /gm);
    const documented = [...rows].flatMap(([, names = "", value = ""]) =>
      [...names.matchAll(/`(\w+)`/g)].map(([, name]) => `${name} (default: ${value.replaceAll("`", "")})`),
    );
    const shown = [...stdout.matchAll(/^ {2}(\w+ \(default: .*\))$/gm)].map(([, line]) => line);
    expect(shown.sort()).toEqual(documented.sort());
    expect(documented.length).toBeGreaterThan(20);
  });

  it("an unreachable service is 7", async () => {
    const env = { LATCHKEY_ADDRESS: "127.0.0.1:1", LATCHKEY_CREDENTIAL: operatorKey };
    expect(await latchkey(["workspace", "list"], env)).toMatchObject({ exitCode: 7 });
  });

  it("a missing credential is reported with the ways to provide one", async () => {
    const env = { LATCHKEY_ADDRESS: app.grpcAddress, DATA_DIR: "/nonexistent" };
    const { exitCode, stderr } = await latchkey(["key", "list"], env);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/--credential-file.*LATCHKEY_CREDENTIAL/);
  });

  it("an invalid credential is reported without repeating it", async () => {
    const env = { LATCHKEY_ADDRESS: app.grpcAddress, LATCHKEY_CREDENTIAL: "lk_with a space" };
    const { exitCode, stderr } = await latchkey(["key", "list"], env);
    expect(exitCode).toBe(1);
    expect(stderr.trim()).toMatch(/^The credential must be .*LATCHKEY_CREDENTIAL.*$/);
    expect(stderr).not.toContain("with a space");
  });

  it("flags take precedence over the environment", async () => {
    const env = { LATCHKEY_ADDRESS: "127.0.0.1:1", LATCHKEY_CREDENTIAL: "nonsense" };
    const folder = mkdtempSync(join(tmpdir(), "latchkey-cli-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "operator.key");
    writeFileSync(file, `${operatorKey}\n`);
    const flags = ["--address", app.grpcAddress, "--credential-file", file];
    expect(await latchkey(["workspace", "list", ...flags], env)).toMatchObject({ exitCode: 0 });
    expect(await latchkey(["workspace", "list", "--credential-file", "/nonexistent"], env)).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("--credential-file must be a readable file"),
    });
  });

  it("no argument accepts a secret, because the process list shows it", async () => {
    const { member, key } = await createWorkspace();
    for (const args of [
      ["key", "verify", key],
      ["key", "list", "--credential", key],
    ]) {
      const refused = await member.run(...args);
      expect(refused).toMatchObject({ exitCode: 2, stdout: "" });
      expect(refused.stderr).not.toContain(key);
    }
  });
});

describe("lease", () => {
  const leaseTimes = async () => {
    const sql = openSql(app.databaseUrl, { max: 1 });
    const [row] = await sql`select lease_ms, wait_ms from cluster_state`.finally(() => sql.end());
    return row;
  };

  it("changes the lease time while the service runs, and reports a missing or invalid value", async () => {
    const env = { DATABASE_URL: app.databaseUrl };
    for (const ms of [200, 50]) {
      expect(await latchkey(["lease", `${ms}`], env)).toMatchObject({ exitCode: 0, stderr: "" });
      expect(await leaseTimes()).toEqual({ lease_ms: ms, wait_ms: ms });
    }
    expect(await latchkey(["lease", "200"])).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("DATABASE_URL"),
    });
    for (const wrong of ["5001", "19", "soon"]) {
      expect(await latchkey(["lease", wrong], env)).toMatchObject({
        exitCode: 2,
        stderr: expect.stringContaining(wrong),
      });
    }
  });
});

describe("migrate", () => {
  it("migrates a database and exits, and reports a missing DATABASE_URL", async () => {
    const stdout = "Nothing to migrate: the schema is current.\n";
    expect(await latchkey(["migrate"], { DATABASE_URL: app.databaseUrl })).toEqual({ exitCode: 0, stdout, stderr: "" });
    const { exitCode, stderr } = await latchkey(["migrate"]);
    expect(exitCode).toBe(1);
    expect(stderr).toContain("DATABASE_URL");
  });
});
