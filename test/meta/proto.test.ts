import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { skipTest } from "../support/skip.js";

const run = promisify(execFile);
const buf = join(process.cwd(), "node_modules/.bin/buf");
const protoFiles = readdirSync("proto/latchkey/v1").map((name) => `latchkey/v1/${name}`);

let folder: string;
let exported: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "latchkey-proto-"));
  exported = join(folder, "exported");
  await run("npm", ["run", "proto:export", "--", "--output", exported]);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the exported proto files", () => {
  it("include every import, and compile with buf and nothing else", async () => {
    await run(buf, ["build", ".", "-o", "image.json"], { cwd: exported });
    const image = JSON.parse(readFileSync(join(exported, "image.json"), "utf8"));
    const files = image.file.map(({ name }: { name: string }) => name);
    expect(files).toEqual(expect.arrayContaining(protoFiles));
    expect(files).toContain("buf/validate/validate.proto");
    expect(files).toContain("google/api/http.proto");
  });

  it("compile with plain protoc", async (context) => {
    const version = await run("protoc", ["--version"]).catch(() => undefined);
    if (version === undefined) skipTest(context, "protoc is not installed on this machine");
    await run("protoc", ["-I.", "--python_out=.", ...protoFiles], { cwd: exported });
    expect(readFileSync(join(exported, "latchkey/v1/keys_service_pb2.py"), "utf8")).toContain("CreateKeyRequest");
  });
});

describe("breaking changes to the released contract", () => {
  /** Runs `buf breaking` on a copy of the proto files with one string of one file replaced. */
  async function breakingChanges(file: string, from: string, to: string): Promise<string> {
    const copy = mkdtempSync(join(folder, "changed-"));
    for (const path of ["proto", "third_party", "buf.yaml"]) cpSync(path, join(copy, path), { recursive: true });
    const changed = join(copy, "proto/latchkey/v1", file);
    const source = readFileSync(changed, "utf8");
    expect(source).toContain(from);
    writeFileSync(changed, source.replace(from, to));
    const check = run(buf, ["breaking", "proto", "--against", "proto/released.binpb.gz"], { cwd: copy });
    return check.then(
      () => "",
      (error: { stdout: string }) => error.stdout,
    );
  }

  it("a renamed field is reported", async () => {
    expect(await breakingChanges("workspace.proto", "string name = 2;", "string title = 2;")).toContain(
      '"name" to "title"',
    );
  });

  it("a removed RPC is reported", async () => {
    const found = await breakingChanges("keys_service.proto", "rpc ListKeys(", "rpc ListAllKeys(");
    expect(found).toContain('"ListKeys"');
  });

  it("additions are accepted", async () => {
    expect(await breakingChanges("key.proto", "string start = 3;", "string start = 3;\n  string end = 99;")).toBe("");
  });
});
