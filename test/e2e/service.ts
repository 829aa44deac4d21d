import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";
import { keep, writeEvidence } from "../support/artifacts.js";
import { descendantsOf, kill, leftOf, type Process, processesIn, until } from "./processes.js";

/** The checkout that is tested. */
export const project = realpathSync(fileURLToPath(new URL("../../", import.meta.url)));

/** A place of its own for one test: a home, a temporary folder and the data. Removed when the test has finished. */
export interface Place {
  readonly folder: string;
  readonly dataDir: string;
  readonly operatorKeyFile: string;
  readonly firstKeyFile: string;
  /** What the service finds as the system's folder for temporary files. */
  readonly temporary: string;
  /** All that a process finds in its environment; nothing of the test run's own environment but PATH. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Makes a place that others may enter, as /tmp itself is; its name has a space, as folders of people have. */
export function makePlace(): Place {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "latchkey start ")));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  const dataDir = join(folder, "data");
  const temporary = join(folder, "tmp");
  const home = join(folder, "home");
  for (const open of [temporary, home]) {
    mkdirSync(open);
    chmodSync(open, 0o1777);
  }
  return {
    folder,
    dataDir,
    operatorKeyFile: join(dataDir, "operator.key"),
    firstKeyFile: join(dataDir, "first.key"),
    temporary,
    environment: {
      PATH: process.env["PATH"] ?? "",
      HOME: home,
      TMPDIR: temporary,
      DATA_DIR: dataDir,
      HTTP_PORT: "0",
      GRPC_PORT: "0",
    },
  };
}

/** How to launch the service other than by `node dist/src/main.js` in the checkout. */
export interface LaunchOptions {
  /** Variables beside those of the place; undefined takes one away. */
  readonly set?: Readonly<Record<string, string | undefined>>;
  /** The program and its arguments. */
  readonly command?: readonly [string, ...string[]];
  /** The folder it is launched in. */
  readonly cwd?: string;
  /** As whom it runs. */
  readonly user?: { readonly uid: number; readonly gid: number };
}

/** How a process ended. */
export interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A launched service, which may not be ready yet, or never. */
export interface Launch {
  readonly pid: number;
  /** What it has printed for people. */
  stdout(): string;
  /** What it has logged. */
  stderr(): string;
  /** Resolves when it has ended and all that it printed has been read. */
  readonly ended: Promise<Ending>;
  /** Resolves when it says that it runs; rejects when it ends instead. */
  ready(): Promise<Service>;
  /** All processes that it started, directly or not, and that run at this moment. */
  family(): Process[];
  /** Sends a signal to this one process. */
  signal(signal: NodeJS.Signals): void;
  /** Sends a signal to its process group, as a terminal does at Ctrl-C. */
  signalGroup(signal: NodeJS.Signals): void;
}

/** A service that runs, and what it told about itself. */
export interface Service extends Launch {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  /** The commands that it printed for pasting. */
  readonly commands: readonly string[];
}

/** Launches the service in a process group of its own. Whatever is left of it when the test has finished is ended. */
export function launch(place: Place, options: LaunchOptions = {}): Launch {
  const [program, ...args] = options.command ?? [process.execPath, join(project, "dist/src/main.js")];
  const child = spawn(program, args, {
    // In the place, so that it can be told from others by its working folder.
    cwd: options.cwd ?? place.folder,
    env: definedOnly({ ...place.environment, ...options.set }),
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    ...options.user,
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`cannot launch ${program}`);
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  const ended = new Promise<Ending>((resolve) => {
    child.once("close", (code, signal) => {
      keep("log lines", stderr(), stderr().split("\n").length - 1);
      writeEvidence();
      resolve({ code, signal, stdout: stdout(), stderr: stderr() });
    });
  });
  const family = () => (hasEnded(child) ? [] : descendantsOf(pid));
  onTestFinished(() => end(child, family(), place));

  const launched: Launch = {
    pid,
    stdout,
    stderr,
    ended,
    family,
    signal: (signal) => process.kill(pid, signal),
    signalGroup: (signal) => process.kill(-pid, signal),
    async ready() {
      const banner = await until("the service says that it runs", () => {
        if (stdout().includes("Ctrl-C stops it.")) return stdout();
        if (hasEnded(child)) throw new Error(`the service ended with ${child.exitCode}:\n${stdout()}${stderr()}`);
        return undefined;
      });
      return { ...launched, ...readBanner(banner) };
    },
  };
  return launched;
}

/** Launches the service and waits until it runs. */
export function start(place: Place, options?: LaunchOptions): Promise<Service> {
  return launch(place, options).ready();
}

/** Waits for the end of a launch that is to fail soon. */
export function ending({ ended }: Launch, ms = 60_000): Promise<Ending> {
  return within(ended, ms, "the process to end");
}

/** Tells the service to stop as a service manager does, waits until it has, and returns how long it took. */
export async function stop(service: Launch): Promise<Ending & { readonly ms: number }> {
  const began = Date.now();
  service.signal("SIGTERM");
  return { ...(await ending(service)), ms: Date.now() - began };
}

/** Runs what a person pastes into a shell, in the checkout. */
export async function paste(command: string, place: Place): Promise<Ending> {
  const { PATH, HOME, TMPDIR } = place.environment;
  const shell = spawn("bash", ["-c", command], {
    cwd: project,
    env: definedOnly({ PATH, HOME, TMPDIR }),
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void shell.kill("SIGKILL"));
  const stdout = collect(shell.stdout);
  const stderr = collect(shell.stderr);
  return within(
    new Promise<Ending>((resolve, reject) => {
      shell.once("error", reject);
      shell.once("close", (code, signal) => resolve({ code, signal, stdout: stdout(), stderr: stderr() }));
    }),
    20_000,
    `${command} to end`,
  );
}

/** The answer of the HTTP/JSON protocol. */
export interface Answer {
  readonly status: number;
  readonly data: Record<string, unknown> | Record<string, unknown>[] | undefined;
}

/** Makes one call through the HTTP/JSON protocol. */
export async function call(
  { httpUrl }: Service,
  path: string,
  credential: string,
  body: unknown = {},
): Promise<Answer> {
  const response = await fetch(`${httpUrl}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${credential}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(15_000),
  });
  const { data } = (await response.json()) as Pick<Answer, "data">;
  return { status: response.status, data };
}

/** A credential that the service keeps in a file. */
/** How to connect to the embedded PostgreSQL on this data, from the files that it keeps. */
export function embeddedUrl(dataDir: string): string {
  const folder = join(dataDir, "postgres");
  return `postgres://latchkey:${readSecret(join(folder, "latchkey.password"))}@${encodeURIComponent(folder)}/postgres`;
}

export function readSecret(file: string): string {
  return readFileSync(file, "utf8").trim();
}

/** What a failure that the user can mend looks like: a few sentences, and no trace of the program's inside. */
export function expectReadableFailure({ code, stdout, stderr }: Ending, ...named: (string | RegExp)[]): void {
  expect(code, stderr).toBe(1);
  expect(stdout, "it does not claim to run").toBe("");
  for (const name of named) expect(stderr).toMatch(name);
  expect(stderr, "no stack trace").not.toMatch(/^ +at |\bnode:internal\b|\.js:\d+/m);
  expect(stderr.trim().split("\n").length, `a few lines:\n${stderr}`).toBeLessThan(15);
}

/** A port of the loopback that is taken until the test has finished. */
export async function takenPort(): Promise<number> {
  const server = createServer();
  onTestFinished(() => void server.close());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return portOf(server.address());
}

/** A port of the loopback that nobody listens on. */
export async function deadPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const port = portOf(server.address());
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Rejects when the promise takes longer. */
export async function within<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${ms} ms in vain for ${what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function portOf(address: unknown): number {
  if (typeof address !== "object" || address === null || !("port" in address)) throw new Error("no port");
  return Number(address.port);
}

function definedOnly(variables: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(variables).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}

function collect(stream: NodeJS.ReadableStream): () => string {
  let text = "";
  stream.setEncoding("utf8").on("data", (chunk) => {
    text += chunk;
  });
  return () => text;
}

function readBanner(banner: string): Pick<Service, "httpUrl" | "grpcAddress" | "commands"> {
  return {
    httpUrl: /^ +HTTP\/JSON, Connect +(\S+)$/m.exec(banner)?.[1] ?? "",
    grpcAddress: /^ +gRPC +(\S+)$/m.exec(banner)?.[1] ?? "",
    commands: [...banner.matchAll(/^ +((?:curl|npx) .+)$/gm)].map(([, command]) => command ?? ""),
  };
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

/** Nothing outlives its test, whatever the test found out. */
async function end(child: ChildProcess, family: readonly Process[], place: Place): Promise<void> {
  child.kill("SIGKILL");
  // What it started is given the time to end by itself, so that it leaves no folders or shared memory behind.
  const left = await leftOf(family, place.folder);
  if (left.length > 0) kill([...family, ...processesIn(place.folder)]);
}
