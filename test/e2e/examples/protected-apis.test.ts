import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DocumentsService } from "../../../examples/protect-your-api/gen/documents_pb.js";
import { createClient as createLatchkey, type LatchkeyClient } from "../../../src/client/client.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import { installPackages, type Project } from "./installed.js";

const run = promisify(execFile);

/** The packages of the examples, and the types that tsc needs. A verifier needs none. */
const needed = [
  ...["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"],
  ...["fastify", "express", "hono", "@hono/node-server", "@grpc/grpc-js", "@grpc/proto-loader"],
  ...["@types/node", "@types/express", "undici-types"],
];

let app: TestApp;
let project: Project;
let keys: LatchkeyClient["keys"];
let env: NodeJS.ProcessEnv;
beforeAll(async () => {
  [app, project] = await Promise.all([openTestApp(), installPackages(needed)]);
  const { workspaces } = createLatchkey({ url: app.httpUrl, key: operatorKey });
  const { key } = await workspaces.createWorkspace({ name: "Acme" });
  ({ keys } = createLatchkey({ url: app.httpUrl, key }));
  const { key: own } = await keys.createKey({ scopes: ["keys.verify"] });
  env = { PATH: process.env["PATH"], LATCHKEY_ADDRESS: app.grpcAddress, LATCHKEY_CREDENTIAL: own, PORT: "0" };
});
afterAll(async () => {
  await app.close();
  project.remove();
});

/** Runs tsc in the project, which checks the declarations of the package, too. */
async function compile(...options: string[]): Promise<void> {
  const args = ["-p", "examples/protect-your-api", ...options];
  const compiled = run(resolve("node_modules/.bin/tsc"), args, { cwd: project.folder });
  await compiled.catch(({ stdout }: { stdout: string }) => expect.fail(stdout));
}

let built: Promise<void> | undefined;
function build(): Promise<void> {
  built ??= compile("--outDir", "built");
  return built;
}

/** For the compiler on a busy machine. */
const compileTimeoutMs = 180_000;

it("the adapters compile in a strict project with Node's module resolution", () => build(), compileTimeoutMs);

it(
  "the adapters compile in a strict project with a bundler's module resolution",
  () => compile("--module", "esnext", "--moduleResolution", "bundler", "--noEmit"),
  compileTimeoutMs,
);

it("the guide shows lines of the examples", () => {
  const guide = readFileSync("docs/guides/protect-your-api.md", "utf8");
  const blocks = [...guide.matchAll(/<!-- from: (\S+) -->\n```\w+\n(.*?)```/gs)];
  expect(blocks.map(([, file = ""]) => basename(file)).sort()).toEqual([
    "connect.ts",
    "express.ts",
    "fastify.ts",
    "grpc.mjs",
    "hono.ts",
  ]);
  for (const [, file = "", block = ""] of blocks) {
    const lines = readFileSync(file, "utf8").split("\n");
    expect(lines).toEqual(expect.arrayContaining(block.trimEnd().split("\n")));
  }
});

/** Calls an example at this address. Returns the id of the key that its handler has seen, or the refusal. */
type Read = (url: string, authorization: Record<string, string>) => Promise<string>;

const readHttp: Read = async (url, headers) => {
  const response = await fetch(`${url}/documents`, { headers });
  const body = (await response.json()) as { readBy: string; code: string };
  return response.ok ? body.readBy : `${response.status} ${body.code}`;
};

const readRpc = (connect: (url: string) => Transport): Read => {
  return async (url, headers) => {
    const client = createClient(DocumentsService, connect(url));
    await client.ping({});
    return client.readDocument({ title: "plan" }, { headers }).then(
      ({ readBy }) => readBy,
      (error) => Code[ConnectError.from(error).code] ?? "",
    );
  };
};

const http = { read: readHttp, missing: "401 MISSING", refused: "401 DISABLED" };
const rpc = { missing: "Unauthenticated", refused: "Unauthenticated" };
const examples = {
  fastify: { file: "built/fastify.js", ...http },
  express: { file: "built/express.js", ...http },
  hono: { file: "built/hono.js", ...http },
  connect: {
    file: "built/connect.js",
    read: readRpc((baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1" })),
    ...rpc,
  },
  grpc: {
    file: "examples/protect-your-api/grpc.mjs",
    read: readRpc((baseUrl) => createGrpcTransport({ baseUrl })),
    ...rpc,
  },
};

describe.each(Object.entries(examples))("the API of the example for %s", (_, { file, read, missing, refused }) => {
  let api: ChildProcess;
  let url: string;
  beforeAll(async () => {
    await build();
    api = spawn("node", [join(project.folder, file)], { env, stdio: ["ignore", "pipe", "inherit"] });
    for await (const line of createInterface({ input: api.stdout as NodeJS.ReadableStream })) {
      url = /^listening on (http:\S+)$/.exec(line)?.[1] ?? expect.fail(line);
      return;
    }
    expect.fail("the example has ended");
  }, compileTimeoutMs);
  afterAll(() => void api.kill("SIGKILL"));

  it("accepts a key until it is disabled, and ends on SIGTERM", async () => {
    const { key, keyId } = await keys.createKey({ permissions: ["documents.read"] });
    const headers = { authorization: `Bearer ${key}` };
    /** Retries as a client does: on a busy machine, a call to the service can fail. */
    const readWithRetries = async (): Promise<string> => {
      const result = await read(url, headers);
      return /^503|Unavailable/.test(result) ? readWithRetries() : result;
    };
    expect(await read(url, {})).toBe(missing);
    expect(await readWithRetries()).toBe(keyId);
    expect(await readWithRetries()).toBe(keyId);
    await keys.updateKey({ keyId, enabled: false });
    expect(await read(url, headers)).not.toBe(keyId);
    expect(await readWithRetries()).toBe(refused);
    const ended = once(api, "exit");
    api.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  });
});
