import { execFile } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { needsTools, protocCheck } from "../../support/skip.js";

const run = promisify(execFile);
const buf = join(process.cwd(), "node_modules/.bin/buf");
const protoFiles = readdirSync("proto/latchkey/v1").map((name) => `latchkey/v1/${name}`);

let folder: string;
let exported: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "latchkey-proto-"));
  exported = join(folder, "dist/proto");
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
    needsTools(context, protocCheck);
    await run("protoc", ["-I.", "--python_out=.", ...protoFiles], { cwd: exported });
    expect(readFileSync(join(exported, "latchkey/v1/keys_service_pb2.py"), "utf8")).toContain("CreateKeyRequest");
  });
});

describe("after npm ci in a fresh clone", () => {
  /** A clone in which npm has installed these packages; `npm ci` ends with the script `prepare`. */
  async function clone(packages: readonly string[]): Promise<string> {
    const copy = mkdtempSync(join(folder, "clone-"));
    for (const path of ["package.json", "buf.yaml", "proto", "scripts"]) {
      cpSync(path, join(copy, path), { recursive: true });
    }
    for (const name of packages) {
      mkdirSync(dirname(join(copy, "node_modules", name)), { recursive: true });
      symlinkSync(realpathSync(join("node_modules", name)), join(copy, "node_modules", name));
    }
    await run("npm", ["run", "prepare"], { cwd: copy });
    return copy;
  }

  it("buf lint works", async () => {
    const copy = await clone(readdirSync("node_modules"));
    await run(buf, ["lint"], { cwd: copy });
  });

  it("buf lint reports a proto file without the package names of generated code", async () => {
    const copy = await clone(readdirSync("node_modules"));
    const file = join(copy, "proto/latchkey/v1/credits.proto");
    writeFileSync(file, readFileSync(file, "utf8").replace(/^option .*\n/gm, ""));
    const lint = run(buf, ["lint"], { cwd: copy });
    await expect(lint).rejects.toMatchObject({ stdout: expect.stringContaining("go_package") });
  });

  it("an installation without development dependencies needs no protos", async () => {
    const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"));
    const copy = await clone(Object.keys(dependencies));
    expect(existsSync(join(copy, "third_party"))).toBe(false);
  });
});

describe("the commands of the guide to generate stubs", () => {
  /** For each language of the guide: a command that works only if its tools are installed, and a generated client. */
  const languages: Readonly<Record<string, { tools: string; client: string }>> = {
    Python: { tools: "python3 -c 'import grpc_tools.protoc'", client: "python/latchkey/v1/keys_service_pb2_grpc.py" },
    Go: {
      tools: `${protocCheck} && command -v protoc-gen-go && command -v protoc-gen-go-grpc`,
      client: "go/latchkey/v1/keys_service_grpc.pb.go",
    },
    Java: {
      tools: `${protocCheck} && command -v grpc_java_plugin`,
      client: "java/dev/latchkey/v1/KeysServiceGrpc.java",
    },
    "C#": { tools: `${protocCheck} && command -v grpc_csharp_plugin`, client: "csharp/KeysServiceGrpc.cs" },
  };
  const guide = readFileSync("docs/guides/generate-stubs.md", "utf8");
  const commands = new Map(
    [...guide.matchAll(/^## ([^\n]+)\n\n<!-- stubs -->\n```sh\n(.*?)```/gms)].map(([, name, command]) => [
      name,
      command,
    ]),
  );

  it("are tested, each of them", () => {
    expect([...commands.keys()]).toEqual(Object.keys(languages));
  });

  it.for(Object.entries(languages))("generate a client in %s", async ([language, { tools, client }], context) => {
    needsTools(context, tools);
    await run("sh", ["-euc", commands.get(language) ?? ""], { cwd: folder });
    expect(readFileSync(join(folder, "dist/stubs", client), "utf8")).toContain("VerifyKey");
  });
});

describe("the package names of generated code", () => {
  it("are in every proto file, the same ones", async () => {
    await run(buf, ["build", "proto", "--exclude-imports", "-o", join(folder, "own.json")]);
    const image: { file: { name: string; options: object }[] } = JSON.parse(
      readFileSync(join(folder, "own.json"), "utf8"),
    );
    expect(image.file.map(({ name }) => name).sort()).toEqual(protoFiles);
    for (const { name, options } of image.file) {
      expect(options, name).toEqual({
        csharpNamespace: "Latchkey.V1",
        goPackage: "latchkey.dev/gen/latchkey/v1;latchkeyv1",
        javaMultipleFiles: true,
        javaPackage: "dev.latchkey.v1",
      });
    }
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
