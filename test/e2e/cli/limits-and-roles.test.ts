import { createHash, randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { openFileApp } from "../../support/file-service.js";
import { commandLine } from "./command-line.js";

const app = await openFileApp();

/** The command line with the first key of a new workspace. */
async function createMember() {
  const { key } = await commandLine(app).json("workspace", "create", "Acme");
  return commandLine(app, key);
}

/** A file with this content, which is removed after the test. */
function fileWith(content: string): string {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-cli-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "keys.json");
  writeFileSync(file, content);
  return file;
}

/** The hash of a new secret of another service. */
const newHash = () => createHash("sha256").update(randomUUID()).digest("base64");

describe("APIs, roles and permissions on the command line", () => {
  it("an API can be created, listed, shown and deleted, and its keys are deleted with it", async () => {
    const member = await createMember();
    const { apiId } = await member.json("api", "create", "payments", "--idempotency-key", "one");
    expect(await member.json("api", "create", "payments", "--idempotency-key", "one")).toEqual({ apiId });
    expect((await member.run("api", "list")).stdout).toMatch(new RegExp(`^ID +NAME +CREATED\n${apiId} +payments +20`));
    const { key } = await member.json("key", "create", "--api", apiId, "--name", "of the API");
    await member.json("key", "create", "--name", "of no API");
    const { keys } = await member.json("key", "list", "--api", apiId);
    expect(keys).toMatchObject([{ name: "of the API", apiId }]);
    expect((await member.run("api", "delete", apiId)).stdout).toBe("deleted\n");
    expect(await member.run("api", "get", apiId)).toMatchObject({
      exitCode: 4,
      stderr: expect.stringContaining("data/api_not_found"),
    });
    expect(await member.runWith(key, "key", "verify")).toMatchObject({
      exitCode: 8,
      stdout: expect.stringMatching(/^CODE +NOT_FOUND\n/),
    });
  });

  it("a role gives its permissions to its keys, until it is changed or deleted", async () => {
    const member = await createMember();
    const permissions = ["--permission", "documents.read", "--permission", "documents:write"];
    await member.json("role", "create", "editor", "--description", "edits", ...permissions);
    expect((await member.run("role", "create", "editor")).exitCode).toBe(5);
    expect((await member.run("role", "list", "--search", "EDIT")).stdout).toMatch(
      /editor +documents\.read, documents:write +edits +role_\w{26}/,
    );
    const { keyId, key } = await member.json("key", "create", "--role", "editor");
    expect((await member.run("key", "get", keyId)).stdout).toMatch(/ROLES +editor/);
    const query = ["key", "verify", "--permissions", "documents.read"];
    expect(await member.runWith(key, ...query)).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(/PERMISSIONS +documents\.read, documents:write\nROLES +editor/),
    });
    const { stdout } = await member.run("role", "set-permissions", "editor", "--permission", "documents:write");
    expect(stdout).toMatch(/SLUG.*\ndocuments:write /);
    expect((await member.runWith(key, ...query)).exitCode).toBe(8);
    expect((await member.run("role", "delete", "editor")).stdout).toBe("deleted\n");
    expect((await member.run("role", "get", "editor")).exitCode).toBe(4);
    expect((await member.json("key", "get", keyId)).key.roles).toEqual([]);
  });

  it("a permission can be added to the catalogue, and cannot be removed while a role has it", async () => {
    const member = await createMember();
    await member.json("permission", "create", "documents.read", "--name", "Read", "--description", "of all teams");
    expect((await member.run("permission", "get", "documents.read")).stdout).toMatch(
      /^SLUG +documents\.read\nNAME +Read\nDESCRIPTION +of all teams\nID +perm_\w{26}\n$/,
    );
    expect((await member.run("permission", "list", "--search", "DOC")).stdout).toMatch(/documents\.read +Read/);
    await member.json("role", "create", "reader", "--permission", "documents.read");
    const inUse = await member.run("permission", "delete", "documents.read");
    expect(inUse).toMatchObject({ exitCode: 5, stderr: expect.stringContaining("data/permission_in_use") });
    await member.json("role", "set-permissions", "reader");
    expect((await member.run("permission", "delete", "documents.read")).stdout).toBe("deleted\n");
  });
});

describe("rate limits and credits on the command line", () => {
  it("a key shows its rate limits and credits as they were given", async () => {
    const member = await createMember();
    const limits = ["--ratelimit", "requests=100/1m,auto", "--ratelimit", "tokens=5000/36h"];
    const credits = ["--credits", "500", "--refill", "1000/monthly:31"];
    const { keyId } = await member.json("key", "create", ...limits, ...credits);
    const { key } = await member.json("key", "get", keyId);
    expect(key.ratelimits).toMatchObject([
      { name: "requests", limit: "100", duration: "60000", autoApply: true },
      { name: "tokens", limit: "5000", duration: "129600000", autoApply: false },
    ]);
    expect((await member.run("key", "get", keyId)).stdout).toMatch(
      /RATE LIMITS +requests=100\/1m,auto, tokens=5000\/36h\nCREDITS +500\nREFILL +1000\/monthly:31\n/,
    );
  });

  it("an update changes the settings that have a flag, and clears the named ones", async () => {
    const member = await createMember();
    const settings = ["--permission", "a", "--ratelimit", "requests=5/1s", "--credits", "5", "--refill", "9/daily"];
    const { keyId } = await member.json("key", "create", "--name", "first", "--external-id", "user_1", ...settings);
    const changes = ["--name", "second", "--permission", "b", "--credits", "7", "--clear", "refill"];
    const { key } = await member.json("key", "update", keyId, ...changes);
    expect(key).toMatchObject({ name: "second", permissions: ["b"], identity: { externalId: "user_1" } });
    expect(key.credits).toEqual({ remaining: "7" });
    expect(key.ratelimits).toMatchObject([{ name: "requests" }]);
    const cleared = ["name", "identity", "permissions", "ratelimits", "credits"].flatMap((name) => ["--clear", name]);
    const after = (await member.json("key", "update", keyId, ...cleared)).key;
    expect(after).toMatchObject({ permissions: [], ratelimits: [] });
    for (const name of ["name", "identity", "credits"]) expect(after).not.toHaveProperty(name);
    expect(await member.run("key", "update", keyId, "--clear", "everything")).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("ratelimits"),
    });
  });

  it("credits can be set, added and removed, and a verification spends them", async () => {
    const member = await createMember();
    const { keyId, key } = await member.json("key", "create", "--credits", "3");
    const change = async (...flags: string[]) => (await member.run("key", "credits", keyId, ...flags)).stdout;
    expect(await change("--increment", "7")).toBe("CREDITS  10\n");
    expect(await change("--decrement", "8")).toBe("CREDITS  2\n");
    const verify = (...flags: string[]) => member.runWith(key, "key", "verify", ...flags);
    expect((await verify("--cost", "2")).stdout).toMatch(/^CODE +VALID\n(.*\n)*CREDITS +0\n$/);
    expect(await verify()).toMatchObject({ exitCode: 8, stdout: expect.stringMatching(/^CODE +USAGE_EXCEEDED\n/) });
    expect(await change("--set", "1")).toBe("CREDITS  1\n");
    expect(await change("--unlimited")).toBe("CREDITS  unlimited\n");
    expect((await verify()).exitCode).toBe(0);
    expect((await member.run("key", "credits", keyId, "--set", "1", "--increment", "1")).exitCode).toBe(2);
    expect((await member.run("key", "credits", keyId)).exitCode).toBe(6);
  });

  it("a verification keeps to rate limits, of the key, of its identity and of its own", async () => {
    const member = await createMember();
    await member.json("identity", "create", "user_1", "--ratelimit", "shared=2/1h");
    const { key } = await member.json("key", "create", "--external-id", "user_1");
    const verify = (...limits: string[]) =>
      member.runWith(key, "key", "verify", ...limits.flatMap((limit) => ["--ratelimit", limit]));
    expect((await verify("shared", "own=9/1h")).stdout).toMatch(
      /RATE LIMITS +own=9\/1h \(8 left\), shared=2\/1h \(1 left\)\n/,
    );
    expect((await verify("shared")).exitCode).toBe(0);
    const refused = await verify("shared");
    expect(refused.exitCode).toBe(8);
    expect(refused.stdout).toMatch(/^CODE +RATE_LIMITED\n(.*\n)*RATE LIMITS +shared=2\/1h \(exceeded\)\n$/);
    const { identity } = await member.json("identity", "update", "user_1", "--ratelimit", "shared=9/1h");
    expect(identity.ratelimits).toMatchObject([{ limit: "9" }]);
    expect((await verify("shared")).exitCode).toBe(0);
    const cleared = await member.json("identity", "update", "user_1", "--clear-ratelimits");
    expect(cleared.identity.ratelimits).toEqual([]);
  });

  it("a use counts against a limit, and an override replaces it", async () => {
    const member = await createMember();
    const use = (identifier: string, ...flags: string[]) =>
      member.run("limit", "use", "email.send", identifier, "2/1h", ...flags);
    expect((await use("user_1")).stdout).toMatch(/^RESULT +within the limit\nLIMIT +2\nREMAINING +1\nRESET +20.*Z\n$/);
    expect((await use("user_1", "--cost", "2")).exitCode).toBe(8);
    expect((await member.run("limit", "set-override", "email.send", "premium_*", "100/1h")).exitCode).toBe(0);
    expect((await use("premium_7")).stdout).toMatch(/LIMIT +100\n/);
    expect((await member.run("limit", "get-override", "email.send", "premium_*")).stdout).toMatch(/LIMIT +100\/1h\n/);
    expect((await member.run("limit", "list-overrides", "email.send")).stdout).toMatch(
      /email\.send +premium_\* +100\/1h/,
    );
    expect((await member.run("limit", "delete-override", "email.send", "premium_*")).stdout).toBe("deleted\n");
    expect((await member.run("limit", "get-override", "email.send", "premium_*")).exitCode).toBe(4);
  });

  it.each([
    ["key", "create", "--ratelimit", "requests=100"],
    ["key", "create", "--ratelimit", "100/1m"],
    ["key", "create", "--ratelimit", "requests=100/1y"],
    ["key", "create", "--ratelimit", "requests=-1/1m"],
    ["key", "create", "--credits", "1.5"],
    ["key", "create", "--credits", "-1"],
    ["key", "create", "--credits", "5", "--refill", "10/weekly"],
    ["limit", "use", "email.send", "user_1", "ten"],
  ])("wrong usage: latchkey %s %s %s %s", async (...args) => {
    expect(await commandLine(app).run(...args)).toMatchObject({ exitCode: 2, stdout: "" });
  });

  it("the service names the field of a value that only it can refuse", async () => {
    const member = await createMember();
    expect(await member.run("key", "create", "--ratelimit", "requests=0/10ms")).toMatchObject({
      exitCode: 6,
      stderr: expect.stringMatching(/ratelimits\[0\]\.limit.*ratelimits\[0\]\.duration/),
    });
    expect(await member.run("key", "create", "--credits", "5", "--refill", "5/daily:3")).toMatchObject({
      exitCode: 6,
      stderr: expect.stringContaining("refillDay"),
    });
  });
});

describe("usage and import on the command line", () => {
  it("shows how often the keys of an identity were verified, by result and tag", async () => {
    const member = await createMember();
    const { keyId, key } = await member.json("key", "create", "--external-id", "user_1");
    for (const tag of ["path=/a", "path=/b"]) await member.runWith(key, "key", "verify", "--tag", tag);
    await member.runWith(key, "key", "verify", "--permissions", "admin");
    for (const args of [
      ["key", "usage", keyId],
      ["identity", "usage", "user_1"],
    ]) {
      const counts = async (...flags: string[]) => (await member.run(...args, ...flags)).stdout;
      await expect.poll(counts, { timeout: 10_000 }).toMatch(/^TIME +TOTAL +VALID.*\n20\S+00:00\.000Z +3 +2 +0 +0 +1 /);
      expect(await counts("--tag", "path=/a", "--granularity", "month")).toMatch(/\n20\S+-01T00:00:00\.000Z +1 +1 /);
      expect(await counts("--from", "2020-01-01", "--to", "2020-01-02")).toMatch(/^TIME.*\n$/);
    }
    expect((await member.run("key", "usage", keyId, "--granularity", "week")).exitCode).toBe(6);
  });

  it("imports keys of any number, and reports those that exist already", async () => {
    const member = await createMember();
    const secrets = Array.from({ length: 101 }, () => `sk_${randomUUID()}`);
    const keys = secrets.map((secret, index) => ({
      hash: createHash("sha256").update(secret).digest("base64"),
      name: `imported ${index}`,
      externalId: "user_1",
      expires: Date.now() + 86_400_000,
    }));
    const { apiId } = await member.json("api", "create", "imported");
    const args = ["--migration-id", "m", "--api", apiId];
    const { migrated, failed } = await member.json("key", "import", fileWith(JSON.stringify(keys)), ...args);
    expect(migrated.map(({ hash }: { hash: string }) => hash)).toEqual(keys.map(({ hash }) => hash));
    expect(failed ?? []).toEqual([]);
    for (const [index, secret] of [secrets[0] ?? "", secrets[100] ?? ""].entries()) {
      const { exitCode, stdout } = await member.runWith(secret, "key", "verify");
      expect(exitCode).toBe(0);
      expect(stdout).toContain(`imported ${index * 100}`);
    }
    const again = await member.run("key", "import", fileWith(JSON.stringify(keys.slice(0, 1))), ...args);
    expect(again).toMatchObject({ exitCode: 5, stderr: "" });
    expect(again.stdout).toMatch(/^HASH +KEY ID +RESULT\n\S{44} +exists already\n$/);
  });

  it("imports keys of any size", async () => {
    const member = await createMember();
    const large = { text: "x".repeat(15_000) };
    const structured = { list: Array(8_000).fill(1) };
    const metas = [...Array(100).fill({ text: "x".repeat(1_500) }), ...Array(10).fill(large), structured, structured];
    const keys = metas.map((meta) => ({ hash: newHash(), meta }));
    const { migrated } = await member.json("key", "import", fileWith(JSON.stringify(keys)), "--migration-id", "m");
    expect(migrated.map(({ hash }: { hash: string }) => hash)).toEqual(keys.map(({ hash }) => hash));
  });

  it("prints what was imported before an error, with the exit code of the error", async () => {
    const member = await createMember();
    const keys = [...Array.from({ length: 100 }, () => ({ hash: newHash() })), { hash: newHash(), roles: ["nobody"] }];
    const args = ["key", "import", fileWith(JSON.stringify(keys)), "--migration-id", "m"];
    const { exitCode, stdout, stderr } = await member.run(...args);
    expect(exitCode).toBe(4);
    expect(stderr).toContain("data/role_not_found");
    expect(stdout.match(/key_\w{26} +imported\n/g)).toHaveLength(100);
    expect((await member.json("key", "list")).pagination.hasMore).toBe(true); // 100 and the first key
  });

  it("an import with an idempotency key can be repeated", async () => {
    const member = await createMember();
    const keys = Array.from({ length: 3 }, () => ({ hash: newHash() }));
    const args = ["key", "import", fileWith(JSON.stringify(keys)), "--migration-id", "m", "--idempotency-key", "once"];
    expect(await member.json(...args)).toEqual(await member.json(...args));
  });

  it.each([
    ["a file that is not JSON", "hash,name", /must be a readable file with JSON/],
    ["a file that is no list", `{"hash":""}`, /must contain a JSON array/],
    ["an unknown field", `[{"hash":""},{"hsah":""}]`, /the key at position 1 is not valid: .*hsah/],
  ])("%s is reported, and nothing is imported", async (_what, content, message) => {
    const member = await createMember();
    const { exitCode, stderr } = await member.run("key", "import", fileWith(content), "--migration-id", "m");
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(message);
    expect((await member.json("key", "list")).keys).toHaveLength(1);
  });
});
