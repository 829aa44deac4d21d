import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { openSql } from "../../../commands/open-sql.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { commandLine, latchkey } from "./command-line.js";

let app: TestApp;
beforeAll(async () => {
  app = await openTestApp();
});
afterAll(() => app.close());

/** A fresh workspace, and the command line with its first key. */
async function createWorkspace(name = "Acme") {
  const operator = commandLine(app);
  const { workspaceId, key } = await operator.json("workspace", "create", name);
  return { operator, workspaceId, key, member: commandLine(app, key) };
}

describe("the operator on the command line", () => {
  it("creates a workspace, finds it, disables it with a reason and enables it again", async () => {
    const { operator, workspaceId, member } = await createWorkspace("Tyrell");
    expect((await operator.run("workspace", "list")).stdout).toMatch(new RegExp(`${workspaceId} +Tyrell +enabled`));

    const words = ["workspace", "disable", workspaceId, "--reason", "quota-exceeded", "--note", "again"];
    const { workspace } = await operator.json(...words);
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

  it("opens a workspace again whose only key is deleted", async () => {
    const { operator, member, workspaceId } = await createWorkspace();
    const [first] = (await member.json("key", "list")).keys;
    await member.run("key", "delete", first.keyId);
    expect((await member.run("key", "list")).exitCode).toBe(3);
    const words = ["--name", "spare", "--scope", "keys.read", "--scope", "keys.update"];
    const { keyId, key } = await operator.json("workspace", "create-root-key", workspaceId, ...words);
    const list = await commandLine(app, key).run("key", "list");
    expect(list.stdout).toMatch(new RegExp(`${keyId} +lk_\\w{4} +spare +enabled +keys.read, keys.update`));
    const shown = await operator.run("workspace", "create-root-key", workspaceId);
    expect(shown.stdout).toMatch(/^KEY ID +key_\w{26}\nKEY +lk_\w{39}\n$/);
    expect((await operator.run("workspace", "create-root-key", "ws_none")).exitCode).toBe(4);
  });

  it("sees who changed what", async () => {
    const { operator, workspaceId } = await createWorkspace();
    const { stdout } = await operator.run("audit", "list", "--workspace", workspaceId);
    expect(stdout).toMatch(/^AT +TYPE +RESOURCE +ACTOR/);
    expect(stdout).toMatch(new RegExp(`workspace\\.create +${workspaceId} +operator`));
  });
});

describe("a key's holder on the command line", () => {
  it("creates, lists, disables, enables, rerolls and deletes keys", async () => {
    const { member } = await createWorkspace();
    const scopes = ["--scope", "keys.read", "--scope", "keys.verify"];
    const words = [...scopes, "--permission", "documents.read", "--permission", "a:b", "--external-id", "user_1"];
    const { keyId, key } = await member.json("key", "create", "--name", "ci", "--prefix", "acme", ...words);
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

  it("creates once what it creates again with the same Idempotency-Key", async () => {
    const { operator, member, workspaceId } = await createWorkspace();
    const creations = [
      { by: operator, words: ["workspace", "create", "Acme"] },
      { by: operator, words: ["workspace", "create-root-key", workspaceId] },
      { by: member, words: ["key", "create", "--name", "ci"] },
    ];
    for (const { by, words } of creations) {
      const again = [...words, "--idempotency-key", words.join(" ")];
      expect(await by.json(...again)).toEqual(await by.json(...again));
    }
    const conflict = ["key", "create", "--name", "other", "--idempotency-key", "key create --name ci"];
    expect(await member.run(...conflict)).toMatchObject({ exitCode: 5, stderr: expect.stringMatching(/conflict/) });
  });

  it("verifies keys by an exit code that scripts can use, also with the secret from standard input", async () => {
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

  it("creates, lists, changes and deletes identities", async () => {
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

  it("is told how to see the rest of a long list", async () => {
    const { member } = await createWorkspace();
    await member.json("key", "create");
    const first = await member.run("key", "list", "--limit", "1");
    const cursor = /--cursor (\S+)/.exec(first.stdout)?.[1] ?? "";
    expect((await member.run("key", "list", "--cursor", cursor)).stdout).not.toContain("More results");
  });
});

describe("what can steer a terminal, or is not seen, is printed by its escapes", () => {
  /** ESC, CSI of C1, right-to-left override, zero-width space, soft hyphen, line separator, and a tag of two units. */
  const odd = "a\u001b[31m\u009b2J\u202e\u200b\u00ad\u2028\u{e0041}z";
  const escapes = "a\\u001b[31m\\u009b2J\\u202e\\u200b\\u00ad\\u2028\\udb40\\udc41z";
  const unseen = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

  it("in names, lists and meta, for people and in JSON, which reads back the same", async () => {
    const { member } = await createWorkspace();
    const { keyId } = await member.json("key", "create", "--name", odd);
    await member.json("identity", "create", "user_1", "--meta", JSON.stringify({ [odd]: [odd] }));
    for (const words of [
      ["key", "get", keyId],
      ["key", "list"],
      ["identity", "get", "user_1"],
    ]) {
      for (const { stdout } of [await member.run(...words), await member.run(...words, "--json")]) {
        expect(stdout).not.toMatch(unseen);
        expect(stdout).toContain(escapes);
      }
    }
    expect((await member.json("key", "get", keyId)).key.name).toBe(odd);
    expect((await member.json("identity", "get", "user_1")).identity.meta).toEqual({ [odd]: [odd] });
  });

  it("in what a refusal repeats", async () => {
    const { member } = await createWorkspace();
    const { stderr } = await member.run("key", "create", "--permission", odd);
    expect(stderr).toMatch(/permissions\[0\]/);
    expect(stderr).not.toMatch(unseen);
  });
});

describe("what goes wrong is told by exit code and sentence", () => {
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
    expect(await run("key", "create", "--expires", "soon")).toMatchObject({ exitCode: 2 });
  });

  it("help is 0, on standard output", async () => {
    const help = await latchkey(["key", "--help"]);
    expect(help).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("verify [options] ") });
  });

  it("a service that is not there is 7", async () => {
    const env = { LATCHKEY_ADDRESS: "127.0.0.1:1", LATCHKEY_CREDENTIAL: operatorKey };
    expect(await latchkey(["workspace", "list"], env)).toMatchObject({ exitCode: 7 });
  });

  it("no credential is told with the ways to give one", async () => {
    const env = { LATCHKEY_ADDRESS: app.grpcAddress, DATA_DIR: "/nonexistent" };
    const { exitCode, stderr } = await latchkey(["key", "list"], env);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/--credential-file.*LATCHKEY_CREDENTIAL/);
  });

  it("a credential that cannot be sent is told in a sentence, without repeating it", async () => {
    const env = { LATCHKEY_ADDRESS: app.grpcAddress, LATCHKEY_CREDENTIAL: "lk_with a space" };
    const { exitCode, stderr } = await latchkey(["key", "list"], env);
    expect(exitCode).toBe(1);
    expect(stderr.trim()).toMatch(/^The credential must be .*LATCHKEY_CREDENTIAL.*$/);
    expect(stderr).not.toContain("with a space");
  });

  it("flags speak before the environment", async () => {
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

  it("no secret is taken from the command line, where the process list shows it", async () => {
    const { member, key } = await createWorkspace();
    for (const words of [
      ["key", "verify", key],
      ["key", "list", "--credential", key],
    ]) {
      const refused = await member.run(...words);
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

  it("changes the lease time while the service runs, and says what is missing or wrong", async () => {
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
  it("brings a database up to date and ends, and says what is missing without one", async () => {
    expect(await latchkey(["migrate"], { DATABASE_URL: app.databaseUrl })).toMatchObject({ exitCode: 0, stderr: "" });
    const { exitCode, stderr } = await latchkey(["migrate"]);
    expect(exitCode).toBe(1);
    expect(stderr).toContain("DATABASE_URL");
  });
});
