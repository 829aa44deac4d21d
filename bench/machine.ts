import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { arch, cpus, release, totalmem, type } from "node:os";
import { join } from "node:path";
import { project } from "../commands/project.js";

/** The machine and the versions of a measurement. */
export interface Machine {
  readonly date: string;
  readonly cpu: string;
  readonly memory: string;
  readonly system: string;
  /** Versions of the measured software. */
  readonly versions: Readonly<Record<string, string>>;
}

const packages = [
  "fastify",
  "@grpc/grpc-js",
  "@connectrpc/connect-node",
  "@bufbuild/protobuf",
  "postgres",
  "better-auth",
];

export function describeMachine(): Machine {
  const processors = cpus();
  return {
    date: new Date().toISOString().slice(0, 10),
    cpu: `${processors.length} × ${modelOf(processors[0]?.model)} (${arch()})`,
    memory: `${(totalmem() / 2 ** 30).toFixed(0)} GiB`,
    system: `${type()} ${release()}`,
    versions: Object.fromEntries([
      ["Latchkey", commit()],
      ["Node", process.version],
      ...packages.flatMap((name) => {
        const version = versionOf(name);
        return version === undefined ? [] : [[name, version]];
      }),
    ]),
  };
}

/** Some kernels do not report the model. */
function modelOf(model: string | undefined): string {
  return model === undefined || model === "unknown" || model.trim() === "" ? "core" : model.trim();
}

function versionOf(name: string): string | undefined {
  const file = ["node_modules", "bench/competitors/node_modules"]
    .map((folder) => join(project, folder, name, "package.json"))
    .find(existsSync);
  return file && JSON.parse(readFileSync(file, "utf8")).version;
}

/** The git commit, or the package version if there is no repository. */
function commit(): string {
  try {
    return execFileSync("git", ["describe", "--always", "--dirty"], {
      cwd: project,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return JSON.parse(readFileSync(join(project, "package.json"), "utf8")).version;
  }
}
