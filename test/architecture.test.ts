import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../src", import.meta.url));

/** One import of one file: of a module by its path below src, of generated code as `gen/…`, or of a package. */
interface Import {
  readonly from: string;
  readonly to: string;
  /** False if the compiler erases it. */
  readonly runtime: boolean;
}

const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
const source = new Map(files.map((file) => [file, withoutComments(readFileSync(join(root, file), "utf8"))]));
const imports = files.flatMap((file) => importsOf(file, source.get(file) ?? ""));

function withoutComments(text: string): string {
  return text.replace(/\/\*.*?\*\//gs, "").replace(/(^|\s)\/\/.*$/gm, "");
}

function importsOf(from: string, text: string): Import[] {
  const statements = text.matchAll(/^(?:import|export)\s+(type\s)?([\w\s{},*$]*?)(?:\bfrom\s+)?"([^"]+)"/gm);
  const dynamic = text.matchAll(/\bimport\(\s*"([^"]+)"/g);
  return [
    ...[...statements].map(([, type, names = "", to = ""]) => ({
      from,
      to: resolved(from, to),
      runtime: type === undefined && !namesOnlyTypes(names),
    })),
    ...[...dynamic].map(([, to = ""]) => ({ from, to: resolved(from, to), runtime: true })),
  ];
}

/** `{ type A, type B }`. */
function namesOnlyTypes(names: string): boolean {
  const [, braced] = /^\{(.*)\}\s*$/s.exec(names.trim()) ?? [];
  const listed = braced
    ?.split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  return listed !== undefined && listed.length > 0 && listed.every((name) => name.startsWith("type "));
}

function resolved(from: string, to: string): string {
  if (!to.startsWith(".")) return to;
  return posix
    .normalize(posix.join(posix.dirname(from), to))
    .replace(/^\.\.\//, "")
    .replace(/\.js$/, ".ts");
}

/** The imports that break a rule, as readable lines. */
function found(from: RegExp, to: RegExp): string[] {
  return imports.filter((each) => from.test(each.from) && to.test(each.to)).map(({ from, to }) => `${from} -> ${to}`);
}

const resources = /^(keys|identities|workspaces)\//;
const doors = /^(gateway|rpc)\//;
const backends = /^(storage\/|postgres$|ioredis$)/;

describe("the arrows between the folders point one way", () => {
  it("the imports are seen at all", () => {
    expect(files.length).toBeGreaterThan(30);
    expect(found(/^app\.ts$/, /^(gateway\/server|keys\/store|storage\/migrate)\.ts$/)).toHaveLength(3);
    expect(found(/^keys\/service\.ts$/, /^gen\//)).not.toEqual([]);
    expect(found(/^storage\/redis\.ts$/, /^ioredis$/)).toHaveLength(1);
  });

  it("the doors know descriptors and the pipeline, and no resource", () => {
    expect(found(doors, resources)).toEqual([]);
  });

  it("the resources know no door", () => {
    expect(found(/^(keys|identities|workspaces|audit|auth|limits|once|retention)\//, doors)).toEqual([]);
  });

  it("limits and kept answers know who calls, and not the other way round", () => {
    expect(found(/^(limits|once)\//, /^auth\//)).not.toEqual([]);
    expect(found(/^auth\//, /^(limits|once)\//)).toEqual([]);
    expect(found(/^(limits|once)\//, resources)).toEqual([]);
  });

  it("storage knows neither resources nor doors", () => {
    expect(found(/^storage\//, /^(keys|identities|workspaces|audit|auth|limits|once|gateway|rpc|app|main)\b/)).toEqual(
      [],
    );
  });

  it("the leaves know only leaves", () => {
    const leaf =
      /^(call\.ts|soon\.ts|errors\.ts|unusable\.ts|update-mask\.ts|ids\.ts|operator-key\.ts|page\.ts|listening\.ts|open-sockets\.ts|certificates\.ts|config\.ts|observe\/|overload\/)/;
    expect(
      found(leaf, /^(keys|identities|workspaces|audit|auth|limits|once|gateway|rpc|storage|embedded|app|main)\b/),
    ).toEqual([]);
  });

  it("nothing knows main, and only serve, a worker and the command line know the application and the configuration", () => {
    expect(found(/./, /^main\.ts$/)).toEqual([]);
    const outside = imports.filter(
      ({ from, to, runtime }) =>
        runtime && !/^(serve\.ts|worker\.ts|cli\/)/.test(from) && /^(app|config)\.ts$/.test(to),
    );
    expect(outside).toEqual([]);
  });

  it("the command line knows the service by its protocol alone", () => {
    expect(found(/^cli\//, /^(keys|identities|workspaces|audit|auth|limits|once|gateway|rpc|storage)\b/)).toEqual([]);
  });

  it("the client knows generated code and what runs in a browser, and nothing of the service", () => {
    expect(found(/^client\//, /^gen\//)).not.toEqual([]);
    expect(found(/^client\//, /^(?!(gen|client)\/|@bufbuild\/protobuf(\/wkt)?$|@connectrpc\/connect(-web)?$)/)).toEqual(
      [],
    );
  });

  it("no import leads back to where it began", () => {
    expect(cycles()).toEqual([]);
  });
});

describe("each file of a resource keeps to its part", () => {
  it("a store knows no message", () => {
    expect(found(/store\.ts$/, /^gen\//)).toEqual([]);
  });

  it("a service sees neither SQL nor Redis", () => {
    expect(found(/service\.ts$/, backends)).toEqual([]);
    const withSql = files.filter((file) => /service\.ts$/.test(file) && /\bsql\s*`/.test(source.get(file) ?? ""));
    expect(withSql).toEqual([]);
  });

  it("a service calls no other service", () => {
    expect(found(/service\.ts$/, /service\.ts$/)).toEqual([]);
  });

  it("a secret is minted, checked and hashed without any input or output", () => {
    expect(found(/^keys\/secret\.ts$/, /^(?!node:(crypto|zlib)$)/)).toEqual([]);
  });

  it("a conversion knows no backend", () => {
    expect(found(/convert\.ts$/, backends)).toEqual([]);
  });
});

describe("the outside world is touched in few places", () => {
  const holding = (pattern: RegExp) => files.filter((file) => pattern.test(source.get(file) ?? ""));

  it("the environment is read in main alone, and handed to the configuration", () => {
    expect(holding(/\bprocess\s*(\.\s*env|\[\s*"env"\s*\])\b|\{[^}]*\benv\b[^}]*\}\s*=\s*process\b/)).toEqual([
      "main.ts",
    ]);
  });

  it("connections are made by the application, main and the embedded backends alone", () => {
    const makers = holding(/\b(connectPostgres|openConnections|connectRedis)\(|\bnew (Redis|Cluster)\(|\bpostgres\(/);
    expect(
      makers.filter(
        (file) => !/^(app\.ts|main\.ts|embedded\/.*|storage\/(postgres|connections|redis)\.ts)$/.test(file),
      ),
    ).toEqual([]);
  });

  it("only storage and the embedded backends know the drivers", () => {
    const users = imports
      .filter(({ to, runtime }) => runtime && /^(postgres|ioredis)$/.test(to))
      .map(({ from }) => from);
    expect(users.filter((file) => !/^(storage|embedded)\//.test(file))).toEqual([]);
  });

  it("nobody else is called: no request can make the service ask an address for something", () => {
    const callers =
      /^import (?!type )\{[^}]*(?<!type )\b(request|get|connect|createConnection|Agent|fetch)\b[^}]*\} from "(node:(http|https|http2|net|tls)|undici)"/m;
    const fetching = /\bglobalThis\.fetch\(|\bawait fetch\(|[=(] ?fetch\(/;
    const asking = [...holding(callers), ...holding(fetching)];
    expect(asking.filter((file) => !/^(cli|client)\//.test(file))).toEqual([]);
    expect(asking).not.toEqual([]);
  });

  it("generated code is imported, never the other way round", () => {
    const generated = readdirSync(join(root, "../gen"), { recursive: true, encoding: "utf8" });
    const texts = generated
      .filter((file) => file.endsWith(".ts"))
      .map((file) => readFileSync(join(root, "../gen", file), "utf8"));
    expect(texts.filter((text) => /from "[^"]*\/src\//.test(text))).toEqual([]);
  });
});

/** Every cycle of runtime imports, once, as the files along it. */
function cycles(): string[] {
  const next = new Map(
    files.map((file) => [file, imports.filter(({ from, runtime }) => runtime && from === file).map(({ to }) => to)]),
  );
  const done = new Set<string>();
  const closed: string[] = [];
  const walk = (file: string, path: readonly string[]) => {
    if (path.includes(file)) closed.push([...path.slice(path.indexOf(file)), file].join(" -> "));
    if (path.includes(file) || done.has(file)) return;
    for (const to of next.get(file) ?? []) walk(to, [...path, file]);
    done.add(file);
  };
  for (const file of files) walk(file, []);
  return closed;
}
