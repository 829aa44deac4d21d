import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createProject, type InstalledService, managers, type UserProject } from "./project.js";

const run = promisify(execFile);

const guide = readFileSync("docs/guides/clients.md", "utf8");

/** Both tarballs, as `npm pack` makes them. */
const tarballs = mkdtempSync(join(tmpdir(), "latchkey-tarballs-"));
let serviceTarball: string;
let clientTarball: string;
beforeAll(async () => {
  for (const folder of [".", "client"]) await run("npm", ["pack", "--pack-destination", tarballs], { cwd: folder });
  const find = (name: RegExp) => join(tarballs, readdirSync(tarballs).find((file) => name.test(file)) ?? "");
  serviceTarball = find(/^latchkey-\d/);
  clientTarball = find(/^latchkey-client-\d/);
});
afterAll(() => rmSync(tarballs, { recursive: true, force: true }));

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

describe.each(Object.keys(managers) as (keyof typeof managers)[])("with %s, in an empty folder", (manager) => {
  let server: UserProject;
  let user: UserProject;
  let service: InstalledService;
  let key: string;
  beforeAll(() => {
    server = createProject(manager);
    user = createProject(manager);
  });
  afterAll(async () => {
    await service?.stop();
    server.remove();
    user.remove();
  });

  it("the service installs", async () => {
    await server.install(serviceTarball);
    print(`service: ${server.installedPackages().length} packages, ${megabytes(server.installedBytes())}`);
  });

  it("the service brings no package that reports installations", () => {
    expect(server.installedPackages()).toContain("fastify");
    expect(server.installedPackages().filter((name) => /scarf|swagger-ui/.test(name))).toEqual([]);
  });

  it("`latchkey serve` starts the service with its backends", async () => {
    service = await server.serve();
    key = readFileSync(join(server.folder, ".latchkey/first.key"), "utf8").trim();
    expect((await fetch(`${service.url}/docs`)).status).toBe(200);
    expect(await (await fetch(`${service.url}/docs/swagger-ui.js`)).text()).toContain("SwaggerUIBundle");
  });

  it("the client installs alone, with at most 5 MB", async () => {
    await user.install(clientTarball);
    expect(user.installedPackages()).toEqual(["@latchkey/client"]);
    print(`client: 1 package, ${megabytes(user.installedBytes())}`);
    expect(user.installedBytes()).toBeLessThan(5_000_000);
  });

  it("the client calls the service", async () => {
    user.write(
      "call.js",
      `import { createClient, isLatchkeyError } from "@latchkey/client";
      const client = createClient({ url: process.env.URL, key: process.env.KEY });
      const { key, keyId } = await client.keys.createKey({ externalId: "user_42", expires: new Date(Date.now() + 60_000) });
      console.log((await client.keys.verifyKey({ key })).code);
      for await (const { keyId: listed } of client.keys.listKeys({ limit: 1 })) if (listed === keyId) console.log("listed");
      await client.keys.getKey({ keyId: "key_none" }).catch((error) => console.log(isLatchkeyError(error, "key_not_found")));`,
    );
    expect(await user.run(["node", "call.js"], { URL: service.url, KEY: key })).toBe("VALID\nlisted\ntrue\n");
  });

  it("the verifier verifies keys without any other package, and throws the errors of the client", async () => {
    user.write(
      "verify.js",
      `import { isLatchkeyError } from "@latchkey/client";
      import { openVerifier } from "@latchkey/client/verifier";
      import { latchkey as express } from "@latchkey/client/verifier/express";
      import { latchkey as fastify } from "@latchkey/client/verifier/fastify";
      import { latchkey as hono } from "@latchkey/client/verifier/hono";
      const address = "http://" + process.env.ADDRESS;
      const verifier = await openVerifier({ address, key: process.env.KEY });
      console.log((await verifier.verify(process.env.KEY)).code, typeof express, typeof fastify, typeof hono);
      await verifier.close();
      await openVerifier({ address, key: "lk_unknown" }).catch((error) => console.log(isLatchkeyError(error)));`,
    );
    const output = await user.run(["node", "verify.js"], { ADDRESS: service.grpcAddress, KEY: key });
    expect(output).toBe("VALID function function function\ntrue\n");
  });

  it("the types of the client and the verifier are complete without any other package", async () => {
    user.write(
      "types.ts",
      `import { createClient, type Key } from "@latchkey/client";
      import { openVerifier } from "@latchkey/client/verifier";
      import { latchkey } from "@latchkey/client/verifier/express";
      const client = createClient({ url: "http://127.0.0.1:8080", key: "lk_any" });
      export const first: Key | undefined = (await client.keys.listKeys()).data[0];
      export const requireKey = latchkey({ verifier: await openVerifier({ address: "", key: "" }) });`,
    );
    // The types of Node are part of every project for Node. All declarations are checked.
    await user.install("@types/node@20");
    await compile(user, "types.ts", "--noEmit", "--skipLibCheck", "false");
  });

  it("the programs of the guide run after its install command, also over gRPC", async () => {
    const [, packages = ""] = /^npm install ((?:@\S+ ?)+)$/m.exec(guide) ?? expect.fail("there is no install command");
    await user.install(...packages.split(" "));
    const blocks = [...guide.matchAll(/<!-- client -->\n```ts\n(.*?)```/gs)].map(([, block]) => block);
    const program = blocks.join("\n");
    user.write(
      "guide.ts",
      program.replaceAll("http://127.0.0.1:8080", service.url).replaceAll("127.0.0.1:50051", service.grpcAddress),
    );
    await compile(user, "guide.ts", "--skipLibCheck");
    expect(await user.run(["node", "guide.js"], { KEY: key })).toContain("over gRPC: VALID");
  });
});

/** Compiles a file of the project with the compiler of this one. */
function compile(project: UserProject, file: string, ...options: readonly string[]): Promise<string> {
  const tsc = resolve("node_modules/.bin/tsc");
  const target = ["--strict", "--module", "nodenext", "--target", "es2023", "--types", "node"];
  return project.run([tsc, file, ...target, ...options]);
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(2)} MB`;
}
