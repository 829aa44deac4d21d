import { execFile } from "node:child_process";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createClient } from "../../../src/client/client.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { needsCurl, needsTools, protocCheck, skipTest } from "../../support/skip.js";
import { installPackages, type Project } from "./installed.js";

const run = promisify(execFile);

/** The documents that show the client. The code blocks of each form one program. */
const clientDocuments = { readme: "README.md", clients: "docs/guides/clients.md" };

/** The packages that the client needs, also for gRPC; that the grpc-js example needs; and the types that tsc needs. */
const needed = [
  ...["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-web", "@connectrpc/connect-node"],
  ...["@grpc/grpc-js", "@grpc/proto-loader"],
  ...["@types/node", "undici-types"],
];

let app: TestApp;
let project: Project;
let env: NodeJS.ProcessEnv;
beforeAll(async () => {
  [app, project] = await Promise.all([openTestApp(), installPackages(needed)]);
  const { workspaces } = createClient({ url: app.httpUrl, key: operatorKey });
  const { key } = await workspaces.createWorkspace({ name: "Acme" });
  const addresses = { LATCHKEY_URL: app.httpUrl, LATCHKEY_ADDRESS: app.grpcAddress };
  for (const [name, document] of Object.entries(clientDocuments)) {
    writeFileSync(join(project.folder, `examples/typescript/${name}.ts`), programOf(document));
  }
  env = { PATH: process.env["PATH"], ...addresses, LATCHKEY_CREDENTIAL: key };
});
afterAll(async () => {
  await app.close();
  project.remove();
});

describe("the package", () => {
  it("of the service contains what was built, the generated code and the proto files, and nothing else", () => {
    const files = readdirSync(project.service, { recursive: true, encoding: "utf8" });
    const foreign = files.filter(
      (file) => !/^((package\.json|README\.md|CHANGELOG\.md|dist)$|dist\/(src|gen|proto|third_party))/.test(file),
    );
    expect(foreign).toEqual([]);
    expect(files.filter((file) => /(?<!\.d)\.ts$|\.map$/.test(file))).toEqual([]);
    const promised = [
      "dist/src/main.js",
      "dist/src/storage/postgres/migrations/0001_schema.sql",
      "dist/proto/google/rpc/status.proto",
      "dist/third_party/swagger-ui/swagger-ui-bundle.js",
    ];
    expect(files).toEqual(expect.arrayContaining(promised));
  });

  it("of the client contains no code of the service, and depends on nothing", () => {
    const files = readdirSync(project.client, { recursive: true, encoding: "utf8" });
    const code = files.filter((file) => file.endsWith(".js"));
    expect(code.filter((file) => !/^dist\/(src\/(client|verifier)|gen)\//.test(file))).toEqual([]);
    const { dependencies, optionalDependencies, peerDependenciesMeta, ...manifest } = JSON.parse(
      readFileSync(join(project.client, "package.json"), "utf8"),
    );
    expect({ dependencies, optionalDependencies }).toEqual({});
    const needed = Object.keys(manifest.peerDependencies).filter((name) => !peerDependenciesMeta[name]?.optional);
    expect(needed).toEqual([]);
  });

  it("has a client that compiles in a strict project with Node's module resolution", () => build());

  it("has a client that compiles in a strict project with a bundler's module resolution", () =>
    compile("--module", "esnext", "--moduleResolution", "bundler", "--noEmit"));

  it("runs the README's client code", async () => {
    await build();
    expect(await outputOf("node", ["built/readme.js"], { KEY: env["LATCHKEY_CREDENTIAL"] })).toBe("true\n");
  });

  it("runs the guide's client code", async () => {
    await build();
    const output = await outputOf("node", ["built/clients.js"], { KEY: env["LATCHKEY_CREDENTIAL"] });
    expect(output).toMatch(
      /^true VALID\nkey_\w+ build server\n\d+ false\nThe request is not valid: externalId .*location: 'externalId'.*\] req_\w+\nkey_\w+\nover gRPC: VALID\n$/s,
    );
  });
});

/** A document's client code as one program that calls this test's service. */
function programOf(document: string): string {
  const blocks = readFileSync(document, "utf8").matchAll(/<!-- client -->\n```ts\n(.*?)```/gs);
  const pasted = [...blocks].map(([, block]) => block).join("\n");
  return pasted.replace("http://127.0.0.1:8080", app.httpUrl).replace("127.0.0.1:50051", app.grpcAddress);
}

/** Compiles the TypeScript programs, once for all tests that run one. */
let built: Promise<void> | undefined;
function build(): Promise<void> {
  built ??= compile("--outDir", "built");
  return built;
}

/** Runs tsc, which checks the package's declarations too. */
async function compile(...options: string[]): Promise<void> {
  const compiled = run(resolve("node_modules/.bin/tsc"), ["-p", "examples/typescript", ...options], {
    cwd: project.folder,
  });
  await compiled.catch(({ stdout }: { stdout: string }) => expect.fail(stdout));
}

/** The output of a command in the project. */
async function outputOf(command: string, args: string[], more: NodeJS.ProcessEnv = {}): Promise<string> {
  const options = { cwd: project.folder, env: { ...env, ...more }, timeout: 20_000 };
  return (await run(command, args, options)).stdout;
}

describe("the examples create, verify and disable a key, and see it refused", () => {
  const story =
    /^created identity id_\w{26}\ncreated key key_\w{26}\nverified: VALID\nverified: DISABLED\nrefused: authorization\/key_disabled\n$/;

  it("with curl", async (context) => {
    needsCurl(context);
    expect(await outputOf("sh", ["examples/curl/story.sh"])).toMatch(story);
  });

  it("with TypeScript", async () => {
    await build();
    expect(await outputOf("node", ["built/story.js"])).toMatch(story);
  });

  it("with grpc-js", async () => {
    expect(await outputOf("node", ["examples/grpc-js/story.mjs"])).toMatch(story);
  });

  it("with Python, and stubs generated with Debian's tools, as the README says", async (context) => {
    needsTools(context, `${protocCheck} && command -v grpc_python_plugin`);
    const path = await pathWithGrpc();
    if (path === undefined) skipTest(context, "no python3 on this machine has the packages grpc and google.protobuf");
    const readme = readFileSync("examples/README.md", "utf8");
    const [, commands = ""] = /Python needs its stubs first:\n\n```sh\n(.*?)```/s.exec(readme) ?? [];
    copyProtoFiles();
    expect(await outputOf("sh", ["-euc", commands], { PATH: path })).toMatch(story);
  });

  it("with Python, and stubs generated with grpcio-tools, as the guide says", async (context) => {
    needsTools(context, "python3 -c 'import grpc_tools.protoc, google.rpc.error_details_pb2'");
    const guide = readFileSync("docs/guides/generate-stubs.md", "utf8");
    const [, command = ""] = /^## Python\n\n<!-- stubs -->\n```sh\n(.*?)```/ms.exec(guide) ?? [];
    copyProtoFiles();
    await outputOf("sh", ["-euc", command]);
    const stubs = { PYTHONPATH: "dist/stubs/python" };
    expect(await outputOf("python3", ["examples/python/story.py"], stubs)).toMatch(story);
  });
});

/** Puts the proto files of the package where `npm run proto:export` writes them. */
function copyProtoFiles(): void {
  cpSync(join(project.service, "dist/proto"), join(project.folder, "dist/proto"), { recursive: true });
}

/** A PATH whose python3 has gRPC: the user's, or the system's, whose packages apt installs. */
async function pathWithGrpc(): Promise<string | undefined> {
  for (const path of [process.env["PATH"], `/usr/bin:${process.env["PATH"]}`]) {
    const known = run("python3", ["-c", "import grpc, google.protobuf"], { env: { PATH: path } });
    if (
      await known.then(
        () => true,
        () => false,
      )
    )
      return path;
  }
  return undefined;
}
