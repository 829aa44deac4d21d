import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { skipTest } from "../support/skip.js";
import { ifRunning, remainingProcesses, until } from "./processes.js";
import {
  call,
  expectUserError,
  launch,
  makeSandbox,
  project,
  readSecret,
  type Sandbox,
  type Service,
  start,
  stop,
  waitForExit,
} from "./service.js";

/** The user of many services of a system. An attacker who takes over one of them becomes this user. */
const nobody = { uid: 65_534, gid: 65_534 };
const isRoot = process.getuid?.() === 0;
const isLinux = process.platform === "linux";

const socketsOf = (dataDir: string) => [join(dataDir, "postgres/.s.PGSQL.5432"), join(dataDir, "valkey/valkey.sock")];

describe("another user of the machine", () => {
  test("finds no port of the embedded backends", async (ctx) => {
    if (!isLinux) skipTest(ctx, "only Linux shows in /proc which process listens on which port");
    const service = await start(makeSandbox());
    const own = [new URL(service.httpUrl).port, service.grpcAddress.split(":").at(-1)].map(Number);
    expect(portsOf(service.pid).sort()).toEqual(own.sort());
    const descendants = service.descendants();
    expect(descendants.length).toBeGreaterThan(4);
    const listening = descendants.map(({ pid, command }) => ({ command, ports: ifRunning(() => portsOf(pid)) }));
    expect(listening.filter(({ ports }) => ports !== undefined).length).toBeGreaterThan(4);
    expect(listening.filter(({ ports = [] }) => ports.length > 0)).toEqual([]);
  });

  test("cannot connect to the sockets of the embedded backends, even if the data folder itself is accessible", async (ctx) => {
    if (!isRoot) skipTest(ctx, "only root can become another user");
    const sandbox = makeSandbox();
    await start(sandbox);
    chmodSync(sandbox.dataDir, 0o755);
    for (const socket of socketsOf(sandbox.dataDir)) {
      expect(statSync(socket).isSocket()).toBe(true);
      expect(await connectTo(socket)).toBe("connected");
      const attempt = `require("node:net").connect(${JSON.stringify(socket)})
        .on("connect", () => console.log("connected")).on("error", ({ code }) => console.log(code)).unref()`;
      const other = spawnSync(process.execPath, ["-e", attempt], { ...nobody, cwd: "/", encoding: "utf8" });
      expect(other.stdout.trim(), socket).toBe("EACCES");
    }
  });
});

describe("started as root, PostgreSQL", () => {
  test("runs with a user id that no account has, and `nobody` cannot read its data", async (ctx) => {
    if (!isRoot) skipTest(ctx, "this test needs root");
    const sandbox = makeSandbox();
    const service = await start(sandbox);
    const { uid } = statSync(join(sandbox.dataDir, "postgres"));
    expectOwnUid(service, uid);
    chmodSync(sandbox.dataDir, 0o755);
    for (const path of [join(sandbox.dataDir, "postgres"), ...workingFoldersOf(service)]) {
      expect(spawnSync("ls", [path], { ...nobody, cwd: "/" }).status, path).not.toBe(0);
    }
    expect(await stop(service)).toMatchObject({ code: 0 });

    const again = await start(sandbox);
    expect(statSync(join(sandbox.dataDir, "postgres")).uid, "the user id is the same at every start").toBe(uid);
    expectOwnUid(again, uid);
  });

  test("changes the owner of data that belongs to `nobody`, but not of files with further hard links", async (ctx) => {
    if (!isRoot) skipTest(ctx, "this test needs root");
    const sandbox = makeSandbox();
    const data = join(sandbox.dataDir, "postgres");
    await stop(await start(sandbox));
    const key = readSecret(sandbox.firstKeyFile);
    chownAll(nobody, data);
    const elsewhere = join(sandbox.folder, "of-another-user");
    writeFileSync(elsewhere, "");
    chownSync(elsewhere, 1_234_567, 1_234_567);
    expect(spawnSync("ln", [elsewhere, join(data, "planted")]).status).toBe(0);
    expect(spawnSync("ln", ["-s", elsewhere, join(data, "symbolic")]).status).toBe(0);
    const inside = join(sandbox.folder, "folder-of-another-user", "inside");
    mkdirSync(dirname(inside));
    writeFileSync(inside, "");
    chownSync(inside, 1_234_567, 1_234_567);
    expect(spawnSync("ln", ["-s", dirname(inside), join(data, "linked-folder")]).status).toBe(0);
    expect(spawnSync("ln", ["-s", ".", join(data, "loop")]).status).toBe(0);

    const service = await start(sandbox);
    expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200 });
    expectOwnUid(service, statSync(data).uid);
    const names = readdirSync(data, { recursive: true, encoding: "utf8" });
    expect(names.filter((name) => lstatSync(join(data, name)).uid === nobody.uid)).toEqual([]);
    expect(statSync(elsewhere).uid).toBe(1_234_567);
    expect(statSync(inside).uid).toBe(1_234_567);
  });

  test("does not start if root is the only user id, with a readable error", async (ctx) => {
    if (spawnSync("unshare", ["-r", "true"]).status !== 0) {
      skipTest(ctx, "this machine cannot create a namespace in which root is the only user");
    }
    const sandbox = makeSandbox();
    const command = ["unshare", "-r", process.execPath, join(project, "dist/src/main.js")] as const;
    const failure = await waitForExit(launch(sandbox, { command }));
    expectUserError(failure, /user id/, "DATABASE_URL");
    expect(readdirSync(sandbox.dataDir)).toEqual([]);
  });
});

test("a DATA_DIR with a path longer than the limit for sockets works, with workers, and after a crash of PostgreSQL", async () => {
  const sandbox = makeSandbox();
  const dataDir = join(sandbox.folder, ..."abcdefgh".split("").map((letter) => letter.repeat(40)));
  const service = await start(sandbox, { set: { DATA_DIR: dataDir, WORKERS: "2" } });
  const key = readSecret(join(dataDir, "first.key"));
  const serves = async () => (await call(service, "/v2/identities.listIdentities", key)).status === 200 || undefined;
  expect(await serves()).toBe(true);
  const readiness = async () => await (await fetch(`${service.httpUrl}/readyz`)).text();
  await until("Redis is in use", async () => /"redis":"in use"/.test(await readiness()) || undefined);

  process.kill(Number(readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8").split("\n")[0]), "SIGKILL");
  await until("PostgreSQL is restarted", () => /PostgreSQL was restarted/.test(service.stderr()) || undefined);
  await until("the service serves again", serves);
  const descendants = service.descendants();
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await remainingProcesses(descendants, sandbox.folder)).toEqual([]);
});

describe("refused with an error that says how to fix it:", () => {
  const withFolder = (prepare: (sandbox: Sandbox) => void) => {
    const sandbox = makeSandbox();
    mkdirSync(sandbox.dataDir, { mode: 0o700 });
    prepare(sandbox);
    return sandbox;
  };

  test.for([0o770, 0o702])("a data folder of mode %i, which other users can write to", async (mode) => {
    const sandbox = withFolder(({ dataDir }) => chmodSync(dataDir, mode));
    const failure = await fail(sandbox);
    expectUserError(failure, "DATA_DIR", `chmod go-w '${sandbox.dataDir}'`);
    chmodSync(sandbox.dataDir, mode & ~0o022);
    await start(sandbox);
  });

  test("a data folder of another user", async (ctx) => {
    if (!isRoot) skipTest(ctx, "only root can change the owner of a folder");
    const sandbox = withFolder(({ dataDir }) => chownSync(dataDir, nobody.uid, nobody.gid));
    expectUserError(await fail(sandbox), "DATA_DIR", `chown 0 '${sandbox.dataDir}'`);
  });

  test("a data folder that other users can replace, because everyone can write to its parent folder", async () => {
    const sandbox = makeSandbox();
    const open = join(sandbox.folder, "open");
    mkdirSync(open);
    chmodSync(open, 0o777);
    const failure = await fail(sandbox, { DATA_DIR: join(open, "inner", "data") });
    expectUserError(failure, "DATA_DIR", `chmod o-w '${open}'`);
    chmodSync(open, 0o1777);
    await start(sandbox, { set: { DATA_DIR: join(open, "inner", "data") } });
  });

  test("a data folder that another user can replace, because that user owns its parent folder", async (ctx) => {
    if (!isRoot) skipTest(ctx, "only root can change the owner of a folder");
    const sandbox = makeSandbox();
    const theirs = join(sandbox.folder, "theirs");
    mkdirSync(theirs);
    chownSync(theirs, nobody.uid, nobody.gid);
    expectUserError(await fail(sandbox, { DATA_DIR: join(theirs, "data") }), "DATA_DIR", `user ${nobody.uid}`);
  });

  test.for([
    ["a symbolic link in the folder of another user", (theirs: string) => chownSync(theirs, nobody.uid, nobody.gid)],
    [
      "a symbolic link of another user in a folder with the sticky bit",
      (theirs: string) => {
        chmodSync(theirs, 0o1777);
        lchownSync(join(theirs, "link"), nobody.uid, nobody.gid);
      },
    ],
  ] as const)("a data folder that another user can replace, because DATA_DIR is %s", async ([, give], ctx) => {
    if (!isRoot) skipTest(ctx, "only root can change the owner of a link");
    const sandbox = withFolder(() => {});
    const theirs = join(sandbox.folder, "theirs");
    mkdirSync(theirs);
    symlinkSync(sandbox.dataDir, join(theirs, "link"));
    symlinkSync(join(theirs, "link"), join(sandbox.folder, "own-link"));
    give(theirs);
    for (const path of [join(theirs, "link"), join(sandbox.folder, "own-link")]) {
      expectUserError(await fail(sandbox, { DATA_DIR: path }), "DATA_DIR", `user ${nobody.uid}`);
    }
  });

  test("a data folder behind a symbolic link of its own user is accepted", async () => {
    const sandbox = withFolder(() => {});
    const link = join(sandbox.folder, "own-link");
    symlinkSync(sandbox.dataDir, link);
    await start(sandbox, { set: { DATA_DIR: link } });
  });

  const planted = "x".repeat(40);

  test.for(["operator.key", "first.key"])("%s that other users can read", async (name) => {
    const sandbox = makeSandbox();
    await stop(await start(sandbox));
    chmodSync(join(sandbox.dataDir, name), 0o640);
    expectUserError(await fail(sandbox), name, `chmod 600 '${join(sandbox.dataDir, name)}'`);
  });

  test("operator.key of another user", async (ctx) => {
    if (!isRoot) skipTest(ctx, "only root can change the owner of a file");
    const sandbox = withFolder(({ operatorKeyFile }) => {
      writeFileSync(operatorKeyFile, planted, { mode: 0o600 });
      chownSync(operatorKeyFile, nobody.uid, nobody.gid);
    });
    const failure = await fail(sandbox);
    expectUserError(failure, "operator.key", `chown 0 '${sandbox.operatorKeyFile}'`);
    expect(failure.stderr).not.toContain(planted);
  });

  test.for(["", "twenty-three-characters"])("operator.key with %j", async (text) => {
    const sandbox = withFolder(({ operatorKeyFile }) => writeFileSync(operatorKeyFile, text, { mode: 0o600 }));
    expectUserError(await fail(sandbox), "operator.key", "24");
  });

  test("a DATA_DIR on a file system where no folder can be created", async (ctx) => {
    if (!isLinux) skipTest(ctx, "only Linux has such a file system at a known path");
    const sandbox = makeSandbox();
    expectUserError(await fail(sandbox, { DATA_DIR: "/proc/latchkey/data" }), "DATA_DIR", "/proc/latchkey/data");
  });
});

async function fail(sandbox: Sandbox, set: Record<string, string> = {}) {
  const failure = await waitForExit(launch(sandbox, { set }));
  expect(await remainingProcesses([], sandbox.folder)).toEqual([]);
  return failure;
}

function connectTo(path: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => resolve("connected"));
    socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code));
    socket.once("connect", () => socket.destroy());
  });
}

/** The TCP ports that this process listens on. */
function portsOf(pid: number): number[] {
  const descriptors = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkOrEmpty(`/proc/${pid}/fd/${fd}`));
  const listening = ["tcp", "tcp6"].flatMap((kind) => {
    const file = `/proc/${pid}/net/${kind}`;
    const lines = existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").slice(1) : [];
    return lines.map((line) => line.trim().split(/\s+/)).filter(([, , , state]) => state === "0A");
  });
  return listening
    .filter(([, , , , , , , , , inode]) => descriptors.includes(`socket:[${inode}]`))
    .map(([, address]) => Number.parseInt(address?.split(":")[1] ?? "", 16));
}

function readlinkOrEmpty(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return ""; // Closed in the meantime.
  }
}

/** PostgreSQL's processes. */
function postgresOf(service: Service): number[] {
  const nameOf = (pid: number) => ifRunning(() => readFileSync(`/proc/${pid}/comm`, "utf8"));
  const pids = service.descendants().map(({ pid }) => pid);
  const found = pids.filter((pid) => nameOf(pid) === "postgres\n");
  expect(found.length).toBeGreaterThan(2);
  return found;
}

function expectOwnUid(service: Service, uid: number): void {
  const read = postgresOf(service).map((pid) => ifRunning(() => readFileSync(`/proc/${pid}/status`, "utf8")));
  const statuses = read.filter((status) => status !== undefined);
  expect(statuses.length).toBeGreaterThan(2);
  for (const status of statuses) {
    const ids = /^Uid:\s+(.*)$/m.exec(status)?.[1]?.split("\t").map(Number);
    expect(ids).toEqual([uid, uid, uid, uid]);
    expect(/^Groups:\s*$/m.test(status), "the process is in no other group").toBe(true);
  }
  expect(uid).not.toBe(nobody.uid);
  expect(readFileSync("/etc/passwd", "utf8")).not.toMatch(new RegExp(`^[^:]*:[^:]*:${uid}:`, "m"));
}

/** Paths to its data that a process of the same user could access. */
function workingFoldersOf(service: Service): string[] {
  return postgresOf(service).map((pid) => `/proc/${pid}/cwd/`);
}

function chownAll({ uid, gid }: { uid: number; gid: number }, folder: string): void {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  for (const path of [folder, ...names.map((name) => join(folder, name))]) {
    if (lstatSync(path).uid !== 0) lchownSync(path, uid, gid);
  }
}
