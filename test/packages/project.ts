import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { expect } from "vitest";

const run = promisify(execFile);

const pnpm = ["node", resolve("node_modules/pnpm/bin/pnpm.cjs")];

/** The package managers, by the commands that a user types. With npm, every package must support this version of Node. */
export const managers = {
  npm: { install: ["npm", "install", "--engine-strict", "--no-audit", "--no-fund"], execute: ["npx", "--no-install"] },
  pnpm: { install: [...pnpm, "add", "--ignore-scripts"], execute: [...pnpm, "exec"] },
} as const;

/** A service that was started from its installed package. */
export interface InstalledService {
  readonly url: string;
  readonly grpcAddress: string;
  stop(): Promise<void>;
}

/** The project of a user, in a folder of its own. */
export interface UserProject {
  readonly folder: string;
  /** Returns what the package manager printed. */
  install(...packages: readonly string[]): Promise<string>;
  write(file: string, text: string): void;
  /** Runs a command in the folder. Returns what it printed. */
  run(command: readonly string[], env?: NodeJS.ProcessEnv): Promise<string>;
  /** Starts the service with its embedded backends, and with its data in this folder. */
  serve(): Promise<InstalledService>;
  /** The bytes of all installed files. */
  installedBytes(): number;
  /** The names of all installed packages, including those that the project cannot import. */
  installedPackages(): string[];
  remove(): void;
}

export function createProject(manager: keyof typeof managers): UserProject {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-user-"));
  const installed = join(folder, "node_modules");
  const write = (file: string, text: string) => writeFileSync(join(folder, file), text);
  /** The paths of all installed files. pnpm also makes links to folders, which are not followed. */
  const installedFiles = () => {
    const entries = readdirSync(installed, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
  };
  write("package.json", JSON.stringify({ name: "user", private: true, type: "module" }));

  async function runInFolder([command = "", ...args]: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
    const options = { cwd: folder, env: { ...cleanEnvironment(), ...env }, timeout: 170_000 };
    const { stdout, stderr } = await run(command, args, options).catch((error) =>
      expect.fail(`${[command, ...args].join(" ")}: ${error.message}\n${error.stdout}`),
    );
    return stdout + stderr;
  }

  return {
    folder,
    install: (...packages) => runInFolder([...managers[manager].install, ...packages]),
    write,
    run: runInFolder,
    async serve() {
      const [command = "", ...args] = [...managers[manager].execute, "latchkey", "serve"];
      const env = { ...cleanEnvironment(), HTTP_PORT: "0", GRPC_PORT: "0" };
      // In a process group of its own, because a package manager need not pass signals on.
      const service = spawn(command, args, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
      const banner = await readBanner(service);
      const [, url = "", grpcAddress = ""] = /HTTP\/JSON, Connect +(\S+)\n +gRPC +(\S+)/.exec(banner) ?? [];
      return { url, grpcAddress, stop: () => stopGroup(service) };
    },
    installedBytes: () => installedFiles().reduce((sum, file) => sum + statSync(file).size, 0),
    installedPackages() {
      const name = /node_modules\/((?:@[^/]+\/)?[^/@.][^/]*)\/package\.json$/;
      return [...new Set(installedFiles().flatMap((file) => name.exec(file)?.[1] ?? []))].sort();
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** The environment of this process, without what npm and vitest have added to it. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(([name]) => !/^(npm_|node_|vitest|init_cwd$)/i.test(name));
  const folders = process.env["PATH"]?.split(delimiter).filter((path) => !path.includes("node_modules"));
  return { ...Object.fromEntries(own), PATH: folders?.join(delimiter) };
}

async function readBanner(service: ChildProcess): Promise<string> {
  let printed = "";
  service.stderr?.on("data", (text) => {
    printed += text;
  });
  for await (const line of createInterface(service.stdout as NodeJS.ReadableStream)) {
    printed += `${line}\n`;
    if (line.startsWith("Ctrl-C")) return printed;
  }
  return expect.fail(`the service has ended: ${printed}`);
}

/** The service stops its backends when it ends, so it is not killed. */
async function stopGroup(service: ChildProcess): Promise<void> {
  const ended = once(service, "exit");
  process.kill(-(service.pid as number), "SIGTERM");
  await ended;
}
