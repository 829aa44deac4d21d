import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";
import { keep, writeEvidence } from "../support/artifacts.js";
import { callJson } from "../support/clients/json-call.js";
import { descendantsOf, kill, type Process, processesIn, remainingProcesses, until } from "./processes.js";

/** The checkout under test. */
export const project = realpathSync(fileURLToPath(new URL("../../", import.meta.url)));

/** The folders of one test: a home, a temporary folder and the data. They are removed when the test has finished. */
export interface Sandbox {
  readonly folder: string;
  readonly dataDir: string;
  readonly operatorKeyFile: string;
  readonly firstKeyFile: string;
  /** The service's folder for temporary files. */
  readonly temporary: string;
  /** The whole environment of a process. Only PATH comes from the environment of the test run. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Creates a sandbox that other users may enter, like /tmp. Its name has a space, as folders of people may have. */
export function makeSandbox(): Sandbox {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "latchkey start ")));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  const dataDir = join(folder, "data");
  const temporary = join(folder, "tmp");
  const home = join(folder, "home");
  for (const shared of [temporary, home]) {
    mkdirSync(shared);
    chmodSync(shared, 0o1777);
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

/** Differences to `node dist/src/main.js` in the checkout. */
export interface LaunchOptions {
  /** Variables in addition to those of the sandbox; undefined removes one. */
  readonly set?: Readonly<Record<string, string | undefined>>;
  /** The program and its arguments. */
  readonly command?: readonly [string, ...string[]];
  /** The working directory. */
  readonly cwd?: string;
  /** The user of the process. */
  readonly user?: { readonly uid: number; readonly gid: number };
}

/** The exit of a process, with its output. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A launched service, which may not be ready yet, or never become ready. */
export interface Launch {
  readonly pid: number;
  /** The banner. */
  stdout(): string;
  /** The log. */
  stderr(): string;
  /** Resolves when the process has exited and all of its output has been read. */
  readonly ended: Promise<Exit>;
  /** Resolves when the service prints its banner; rejects if it exits instead. */
  ready(): Promise<Service>;
  /** All running processes that it started, directly or indirectly. */
  descendants(): Process[];
  /** Sends a signal to this one process. */
  signal(signal: NodeJS.Signals): void;
  /** Sends a signal to its process group, as a terminal does at Ctrl-C. */
  signalGroup(signal: NodeJS.Signals): void;
}

/** A running service, and the content of its banner. */
export interface Service extends Launch {
  readonly httpUrl: string;
  readonly grpcAddress: string;
  /** The example commands of the banner. */
  readonly commands: readonly string[];
}

/** Launches the service in its own process group. Remaining processes are ended when the test has finished. */
export function launch(sandbox: Sandbox, options: LaunchOptions = {}): Launch {
  const [program, ...args] = options.command ?? [process.execPath, join(project, "dist/src/main.js")];
  const child = spawn(program, args, {
    // In the sandbox, so that its working directory distinguishes it from other processes.
    cwd: options.cwd ?? sandbox.folder,
    env: definedOnly({ ...sandbox.environment, ...options.set }),
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    ...options.user,
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`cannot launch ${program}`);
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  const ended = new Promise<Exit>((resolve) => {
    child.once("close", (code, signal) => {
      keep("log lines", stderr(), stderr().split("\n").length - 1);
      writeEvidence();
      resolve({ code, signal, stdout: stdout(), stderr: stderr() });
    });
  });
  const descendants = () => (hasEnded(child) ? [] : descendantsOf(pid));
  onTestFinished(() => endProcesses(child, descendants(), sandbox));

  const launched: Launch = {
    pid,
    stdout,
    stderr,
    ended,
    descendants,
    signal: (signal) => process.kill(pid, signal),
    signalGroup: (signal) => process.kill(-pid, signal),
    async ready() {
      const banner = await until("the service prints its banner", () => {
        if (stdout().includes("Ctrl-C stops it.")) return stdout();
        if (hasEnded(child)) throw new Error(`the service exited with ${child.exitCode}:\n${stdout()}${stderr()}`);
        return undefined;
      });
      return { ...launched, ...readBanner(banner) };
    },
  };
  return launched;
}

/** Launches the service and waits until it runs. */
export function start(sandbox: Sandbox, options?: LaunchOptions): Promise<Service> {
  return launch(sandbox, options).ready();
}

/** Waits for the process to exit. */
export function waitForExit({ ended }: Launch, ms = 60_000): Promise<Exit> {
  return within(ended, ms, "the process exits");
}

/** Sends SIGTERM, as a service manager does, waits for the exit, and returns the duration. */
export async function stop(service: Launch): Promise<Exit & { readonly ms: number }> {
  const began = Date.now();
  service.signal("SIGTERM");
  return { ...(await waitForExit(service)), ms: Date.now() - began };
}

/** Runs a command in a shell in the checkout, as a person who pastes it. */
export async function paste(command: string, sandbox: Sandbox): Promise<Exit> {
  const { PATH, HOME, TMPDIR } = sandbox.environment;
  const shell = spawn("bash", ["-c", command], {
    cwd: project,
    env: definedOnly({ PATH, HOME, TMPDIR }),
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void shell.kill("SIGKILL"));
  const stdout = collect(shell.stdout);
  const stderr = collect(shell.stderr);
  return within(
    new Promise<Exit>((resolve, reject) => {
      shell.once("error", reject);
      shell.once("close", (code, signal) => resolve({ code, signal, stdout: stdout(), stderr: stderr() }));
    }),
    20_000,
    `${command} exits`,
  );
}

type JsonData = Record<string, unknown> | Record<string, unknown>[] | undefined;

/** Makes one call over HTTP/JSON. */
export function call({ httpUrl }: Service, path: string, credential: string, body?: unknown) {
  return callJson<JsonData>(httpUrl, path, credential, body, AbortSignal.timeout(15_000));
}

/** The URL of the embedded PostgreSQL on this data, from the files that it stores. */
export function embeddedUrl(dataDir: string): string {
  const folder = join(dataDir, "postgres");
  return `postgres://latchkey:${readSecret(join(folder, "latchkey.password"))}@${encodeURIComponent(folder)}/postgres`;
}

/** Reads a credential that the service stores in a file. */
export function readSecret(file: string): string {
  return readFileSync(file, "utf8").trim();
}

/** Expects a `UserError`: a few sentences that name these things, and no stack trace. */
export function expectUserError({ code, stdout, stderr }: Exit, ...named: (string | RegExp)[]): void {
  expect(code, stderr).toBe(1);
  expect(stdout, "no banner").toBe("");
  for (const name of named) expect(stderr).toMatch(name);
  expect(stderr, "no stack trace").not.toMatch(/^ +at |\bnode:internal\b|\.js:\d+/m);
  expect(stderr.trim().split("\n").length, `a few lines:\n${stderr}`).toBeLessThan(15);
}

/** A port of the loopback address that is in use until the test has finished. */
export async function usedPort(): Promise<number> {
  const server = createServer();
  onTestFinished(() => void server.close());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return portOf(server.address());
}

/** A port of the loopback address on which no process listens. */
export async function unusedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const port = portOf(server.address());
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Rejects if the promise takes longer. */
export async function within<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`timeout after ${ms} ms: ${what}`)), ms);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
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

/** No process outlives its test, whether the test passes or fails. */
async function endProcesses(child: ChildProcess, descendants: readonly Process[], sandbox: Sandbox): Promise<void> {
  child.kill("SIGKILL");
  // Its child processes get time to exit by themselves, so that they leave no folders or shared memory behind.
  const left = await remainingProcesses(descendants, sandbox.folder);
  if (left.length > 0) kill([...descendants, ...processesIn(sandbox.folder)]);
}
