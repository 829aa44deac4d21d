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
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { leaveOut } from "../support/skip.js";
import { leftOf, until } from "./processes.js";
import {
  call,
  ending,
  expectReadableFailure,
  launch,
  makePlace,
  type Place,
  project,
  readSecret,
  type Service,
  start,
  stop,
} from "./service.js";

/** As whom many services of a system run, and so a user whom one of them may fall to. */
const nobody = { uid: 65_534, gid: 65_534 };
const isRoot = process.getuid?.() === 0;
const isLinux = process.platform === "linux";

const socketsOf = (dataDir: string) => [join(dataDir, "postgres/.s.PGSQL.5432"), join(dataDir, "valkey/valkey.sock")];

describe("another user of the machine", () => {
  test("finds no port of the embedded backends", async (ctx) => {
    if (!isLinux) leaveOut(ctx, "only Linux tells in /proc which process listens on which port");
    const service = await start(makePlace());
    const own = [new URL(service.httpUrl).port, service.grpcAddress.split(":").at(-1)].map(Number);
    expect(portsOf(service.pid).sort()).toEqual(own.sort());
    const family = service.family();
    expect(family.length).toBeGreaterThan(4);
    for (const { pid, command } of family) expect(portsOf(pid), command).toEqual([]);
  });

  test("cannot connect to their sockets, not even where the data folder itself is open", async (ctx) => {
    if (!isRoot) leaveOut(ctx, "only root can become another user");
    const place = makePlace();
    await start(place);
    chmodSync(place.dataDir, 0o755);
    for (const socket of socketsOf(place.dataDir)) {
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
  test("runs as a user whom no account is, and `nobody` cannot read its data", async (ctx) => {
    if (!isRoot) leaveOut(ctx, "only root can try this");
    const place = makePlace();
    const service = await start(place);
    const { uid } = statSync(join(place.dataDir, "postgres"));
    expectUidOfItsOwn(service, uid);
    chmodSync(place.dataDir, 0o755);
    for (const path of [join(place.dataDir, "postgres"), ...workingFoldersOf(service)]) {
      expect(spawnSync("ls", [path], { ...nobody, cwd: "/" }).status, path).not.toBe(0);
    }
    expect(await stop(service)).toMatchObject({ code: 0 });

    const again = await start(place);
    expect(statSync(join(place.dataDir, "postgres")).uid, "it is the same at every start").toBe(uid);
    expectUidOfItsOwn(again, uid);
  });

  test("takes over data that belongs to `nobody`, but nothing that has a name elsewhere, too", async (ctx) => {
    if (!isRoot) leaveOut(ctx, "only root can try this");
    const place = makePlace();
    const data = join(place.dataDir, "postgres");
    await stop(await start(place));
    const key = readSecret(place.firstKeyFile);
    giveTo(nobody, data);
    const elsewhere = join(place.folder, "of-another-user");
    writeFileSync(elsewhere, "");
    chownSync(elsewhere, 1_234_567, 1_234_567);
    expect(spawnSync("ln", [elsewhere, join(data, "planted")]).status).toBe(0);
    expect(spawnSync("ln", ["-s", elsewhere, join(data, "symbolic")]).status).toBe(0);
    const inside = join(place.folder, "folder-of-another-user", "inside");
    mkdirSync(dirname(inside));
    writeFileSync(inside, "");
    chownSync(inside, 1_234_567, 1_234_567);
    expect(spawnSync("ln", ["-s", dirname(inside), join(data, "linked-folder")]).status).toBe(0);
    expect(spawnSync("ln", ["-s", ".", join(data, "loop")]).status).toBe(0);

    const service = await start(place);
    expect(await call(service, "/v1/keys.listKeys", key)).toMatchObject({ status: 200 });
    expectUidOfItsOwn(service, statSync(data).uid);
    const names = readdirSync(data, { recursive: true, encoding: "utf8" });
    expect(names.filter((name) => lstatSync(join(data, name)).uid === nobody.uid)).toEqual([]);
    expect(statSync(elsewhere).uid).toBe(1_234_567);
    expect(statSync(inside).uid).toBe(1_234_567);
  });

  test("cannot run where there is no other user id than root's, and says so in a sentence", async (ctx) => {
    if (spawnSync("unshare", ["-r", "true"]).status !== 0) {
      leaveOut(ctx, "this machine makes no namespace in which root is the only user");
    }
    const place = makePlace();
    const command = ["unshare", "-r", process.execPath, join(project, "dist/src/main.js")] as const;
    const failure = await ending(launch(place, { command }));
    expectReadableFailure(failure, /user id/, "DATABASE_URL");
    expect(readdirSync(place.dataDir)).toEqual([]);
  });
});

test("a DATA_DIR far deeper than the path of a socket may be works, with workers, and after a crash of PostgreSQL", async () => {
  const place = makePlace();
  const dataDir = join(place.folder, ..."abcdefgh".split("").map((letter) => letter.repeat(40)));
  const service = await start(place, { set: { DATA_DIR: dataDir, WORKERS: "2" } });
  const key = readSecret(join(dataDir, "first.key"));
  const serves = async () => (await call(service, "/v2/identities.listIdentities", key)).status === 200 || undefined;
  expect(await serves()).toBe(true);
  const readiness = async () => await (await fetch(`${service.httpUrl}/readyz`)).text();
  await until("Redis is in use", async () => /"redis":"in use"/.test(await readiness()) || undefined);

  process.kill(Number(readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8").split("\n")[0]), "SIGKILL");
  await until("it is started again", () => /PostgreSQL was restarted/.test(service.stderr()) || undefined);
  await until("it serves again", serves);
  const family = service.family();
  expect(await stop(service)).toMatchObject({ code: 0 });
  expect(await leftOf(family, place.folder)).toEqual([]);
});

describe("refused with a sentence that says how to fix it:", () => {
  const withFolder = (prepare: (place: Place) => void) => {
    const place = makePlace();
    mkdirSync(place.dataDir, { mode: 0o700 });
    prepare(place);
    return place;
  };

  test.for([0o770, 0o702])("a data folder of mode %i, which others can write to", async (mode) => {
    const place = withFolder(({ dataDir }) => chmodSync(dataDir, mode));
    const failure = await fail(place);
    expectReadableFailure(failure, "DATA_DIR", `chmod go-w '${place.dataDir}'`);
    chmodSync(place.dataDir, mode & ~0o022);
    await start(place);
  });

  test("a data folder of another user", async (ctx) => {
    if (!isRoot) leaveOut(ctx, "only root can give a folder away");
    const place = withFolder(({ dataDir }) => chownSync(dataDir, nobody.uid, nobody.gid));
    expectReadableFailure(await fail(place), "DATA_DIR", `chown 0 '${place.dataDir}'`);
  });

  test("a data folder that others can exchange, because everybody can write to the folder it lies in", async () => {
    const place = makePlace();
    const open = join(place.folder, "open");
    mkdirSync(open);
    chmodSync(open, 0o777);
    const failure = await fail(place, { DATA_DIR: join(open, "inner", "data") });
    expectReadableFailure(failure, "DATA_DIR", `chmod o-w '${open}'`);
    chmodSync(open, 0o1777);
    await start(place, { set: { DATA_DIR: join(open, "inner", "data") } });
  });

  test("a data folder that another user can exchange, because the folder it lies in is theirs", async (ctx) => {
    if (!isRoot) leaveOut(ctx, "only root can give a folder away");
    const place = makePlace();
    const theirs = join(place.folder, "theirs");
    mkdirSync(theirs);
    chownSync(theirs, nobody.uid, nobody.gid);
    expectReadableFailure(await fail(place, { DATA_DIR: join(theirs, "data") }), "DATA_DIR", `user ${nobody.uid}`);
  });

  const planted = "x".repeat(40);

  test.for(["operator.key", "first.key"])("%s that others can read", async (name) => {
    const place = makePlace();
    await stop(await start(place));
    chmodSync(join(place.dataDir, name), 0o640);
    expectReadableFailure(await fail(place), name, `chmod 600 '${join(place.dataDir, name)}'`);
  });

  test("operator.key of another user", async (ctx) => {
    if (!isRoot) leaveOut(ctx, "only root can give a file away");
    const place = withFolder(({ operatorKeyFile }) => {
      writeFileSync(operatorKeyFile, planted, { mode: 0o600 });
      chownSync(operatorKeyFile, nobody.uid, nobody.gid);
    });
    const failure = await fail(place);
    expectReadableFailure(failure, "operator.key", `chown 0 '${place.operatorKeyFile}'`);
    expect(failure.stderr).not.toContain(planted);
  });

  test.for(["", "twenty-three-characters"])("operator.key with %j", async (text) => {
    const place = withFolder(({ operatorKeyFile }) => writeFileSync(operatorKeyFile, text, { mode: 0o600 }));
    expectReadableFailure(await fail(place), "operator.key", "24");
  });

  test("a DATA_DIR on a file system where no folder can be made", async (ctx) => {
    if (!isLinux) leaveOut(ctx, "only Linux has such a file system at a known place");
    const place = makePlace();
    expectReadableFailure(await fail(place, { DATA_DIR: "/proc/latchkey/data" }), "DATA_DIR", "/proc/latchkey/data");
  });
});

async function fail(place: Place, set: Record<string, string> = {}) {
  const failure = await ending(launch(place, { set }));
  expect(await leftOf([], place.folder)).toEqual([]);
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
  const descriptors = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkOrNothing(`/proc/${pid}/fd/${fd}`));
  const listening = ["tcp", "tcp6"].flatMap((kind) => {
    const file = `/proc/${pid}/net/${kind}`;
    const lines = existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").slice(1) : [];
    return lines.map((line) => line.trim().split(/\s+/)).filter(([, , , state]) => state === "0A");
  });
  return listening
    .filter(([, , , , , , , , , inode]) => descriptors.includes(`socket:[${inode}]`))
    .map(([, address]) => Number.parseInt(address?.split(":")[1] ?? "", 16));
}

function readlinkOrNothing(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return ""; // Closed meanwhile.
  }
}

/** PostgreSQL's processes. */
function postgresOf(service: Service): number[] {
  const pids = service.family().filter(({ pid }) => readFileSync(`/proc/${pid}/comm`, "utf8") === "postgres\n");
  expect(pids.length).toBeGreaterThan(2);
  return pids.map(({ pid }) => pid);
}

function expectUidOfItsOwn(service: Service, uid: number): void {
  for (const pid of postgresOf(service)) {
    const ids = /^Uid:\s+(.*)$/m
      .exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]
      ?.split("\t")
      .map(Number);
    expect(ids).toEqual([uid, uid, uid, uid]);
    expect(/^Groups:\s*$/m.test(readFileSync(`/proc/${pid}/status`, "utf8")), "it is in no other group").toBe(true);
  }
  expect(uid).not.toBe(nobody.uid);
  expect(readFileSync("/etc/passwd", "utf8")).not.toMatch(new RegExp(`^[^:]*:[^:]*:${uid}:`, "m"));
}

/** The ways to its data that a process of the same user would have. */
function workingFoldersOf(service: Service): string[] {
  return postgresOf(service).map((pid) => `/proc/${pid}/cwd/`);
}

function giveTo({ uid, gid }: { uid: number; gid: number }, folder: string): void {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  for (const path of [folder, ...names.map((name) => join(folder, name))]) {
    if (lstatSync(path).uid !== 0) lchownSync(path, uid, gid);
  }
}
