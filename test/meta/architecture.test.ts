import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../src", import.meta.url));

/** One import of one file: a module by its path below src, generated code as `gen/…`, or a package. */
interface Import {
  readonly from: string;
  readonly to: string;
  /** False for a type-only import, which the compiler erases. */
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

/** Matches `{ type A, type B }`. */
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

/** The imports that violate a rule, as readable lines. */
function found(from: RegExp, to: RegExp): string[] {
  return imports.filter((each) => from.test(each.from) && to.test(each.to)).map(({ from, to }) => `${from} -> ${to}`);
}

const backends = /^(storage\/|postgres$|ioredis$)/;

/** The folder of a file in src, or the file's name if it is in none. */
const unitOf = (file: string) => /^([\w-]+)(\/|\.ts$)/.exec(file)?.[1] ?? file;

/** Units that every unit may import. They import only each other, in this order: each may import those before it. */
const leaves = ["errors", "ids", "pagination", "call", "observe", "overload", "net"];

/** The units that each unit may import besides the leaves. */
const arrows: Readonly<Record<string, readonly string[]>> = {
  main: ["cli"],
  cli: ["process", "app", "config", "client"],
  process: ["app", "http", "config", "embedded", "keys"],
  app: ["http", "grpc", "rpc", "auth", "idempotency", "rate-limit", "workspaces", "keys", "identities", "audit"].concat(
    ["apis", "permissions", "limiter", "credits", "usage", "retention", "quotas", "delegation", "revocation"].concat([
      "storage",
    ]),
  ),
  http: ["rpc"],
  grpc: ["rpc"],
  rpc: ["auth", "idempotency", "revocation", "storage"],
  delegation: ["keys", "revocation", "usage"],
  "rate-limit": ["auth", "storage"],
  auth: ["keys", "revocation"],
  workspaces: ["keys", "audit", "idempotency", "revocation", "storage"],
  keys: [
    "limiter",
    "credits",
    "usage",
    "identities",
    "permissions",
    "audit",
    "idempotency",
    "quotas",
    "revocation",
  ].concat(["storage"]),
  credits: ["audit", "storage"],
  limiter: ["audit", "quotas", "revocation", "storage"],
  usage: ["revocation", "storage"],
  identities: ["usage", "audit", "idempotency", "quotas", "revocation", "storage"],
  apis: ["audit", "idempotency", "quotas", "revocation", "storage"],
  permissions: ["audit", "idempotency", "quotas", "revocation", "storage"],
  audit: ["revocation", "storage"],
  idempotency: ["revocation", "storage"],
  retention: ["audit", "storage"],
  quotas: ["storage"],
  revocation: ["storage"],
  storage: [],
  embedded: [],
  client: [],
  verifier: ["client", "keys", "revocation"],
  config: ["quotas", "rate-limit", "storage"],
};

describe("dependencies between folders are acyclic", () => {
  const between = imports
    .filter(({ to }) => files.includes(to))
    .map(({ from, to }) => ({ from, to, unit: unitOf(from), used: unitOf(to) }))
    .filter(({ unit, used }) => unit !== used);

  it("imports are detected", () => {
    expect(files.length).toBeGreaterThan(100);
    expect(found(/^app\.ts$/, /^(http\/server|keys\/store|storage\/postgres\/migrate)\.ts$/)).toHaveLength(3);
    expect(found(/^keys\/service\.ts$/, /^gen\//)).not.toEqual([]);
    expect(found(/^storage\/redis\/client\.ts$/, /^ioredis$/)).toHaveLength(1);
  });

  it("every folder and every top-level file is in the table", () => {
    expect([...new Set(files.map(unitOf))].sort()).toEqual([...leaves, ...Object.keys(arrows)].sort());
  });

  it("there are six top-level files", () => {
    const loose = files.filter((file) => !file.includes("/"));
    expect(loose.sort()).toEqual(["app.ts", "config.ts", "errors.ts", "ids.ts", "main.ts", "pagination.ts"]);
  });

  it("every import is allowed by the table", () => {
    const unexpected = between.filter(({ unit, used }) =>
      leaves.includes(unit)
        ? !leaves.slice(0, leaves.indexOf(unit)).includes(used)
        : !leaves.includes(used) && !arrows[unit]?.includes(used),
    );
    expect(unexpected.map(({ from, to }) => `${from} -> ${to}`)).toEqual([]);
  });

  it("every dependency in the table is used", () => {
    const unused = Object.entries(arrows).flatMap(([unit, targets]) =>
      targets
        .filter((target) => !between.some((one) => one.unit === unit && one.used === target))
        .map((target) => `${unit} -> ${target}`),
    );
    expect(unused).toEqual([]);
  });

  it("there is no cycle between folders", () => {
    expect(cycles(Object.keys(arrows), (unit) => arrows[unit] ?? [])).toEqual([]);
  });

  it("there is no cycle between files", () => {
    const next = (file: string) => imports.filter(({ from, runtime }) => runtime && from === file).map(({ to }) => to);
    expect(cycles(files, next)).toEqual([]);
  });

  it("only the command line and the processes import the configuration", () => {
    const outside = imports.filter(
      ({ from, to, runtime }) => runtime && !/^(process|cli)\//.test(from) && /^(app|config)\.ts$/.test(to),
    );
    expect(outside).toEqual([]);
  });

  it("the client imports nothing but the types and the list of operations that are generated for it", () => {
    const files = /^client\/(?!protobuf)/;
    expect(found(files, /^gen\/client\.ts$/)).not.toEqual([]);
    expect(found(files, /^(?!gen\/client\.ts$|client\/(?!protobuf))/)).toEqual([]);
  });

  it("the protobuf client imports only generated code and packages that run in a browser", () => {
    const files = /^client\/protobuf/;
    expect(found(files, /^gen\//)).not.toEqual([]);
    expect(found(files, /^(?!(gen|client)\/|@bufbuild\/protobuf(\/wkt)?$|@connectrpc\/connect(-web)?$)/)).toEqual([]);
  });
});

describe("layers of a resource", () => {
  it("a store does not import messages", () => {
    expect(found(/store\.ts$/, /^gen\//)).toEqual([]);
  });

  it("a service uses neither SQL nor Redis", () => {
    expect(found(/service\.ts$/, backends)).toEqual([]);
    const withSql = files.filter((file) => /service\.ts$/.test(file) && /\bsql\s*`/.test(source.get(file) ?? ""));
    expect(withSql).toEqual([]);
  });

  it("a service calls no other service", () => {
    expect(found(/service\.ts$/, /service\.ts$/)).toEqual([]);
  });

  it("creating, checking and hashing a secret does no I/O", () => {
    expect(found(/^keys\/secret\.ts$/, /^(?!node:(crypto|zlib)$)/)).toEqual([]);
  });

  it("a conversion imports no backend", () => {
    expect(found(/convert\.ts$/, backends)).toEqual([]);
  });
});

describe("external access is confined to few files", () => {
  const filesMatching = (pattern: RegExp) => files.filter((file) => pattern.test(source.get(file) ?? ""));

  it("only main reads the environment, and passes it to the configuration", () => {
    expect(filesMatching(/\bprocess\s*(\.\s*env|\[\s*"env"\s*\])\b|\{[^}]*\benv\b[^}]*\}\s*=\s*process\b/)).toEqual([
      "main.ts",
    ]);
  });

  it("only the application, main and the embedded backends open connections", () => {
    const makers = filesMatching(
      /\b(connectPostgres|openDatabase|connectRedis)\(|\bnew (Redis|Cluster)\(|\bpostgres\(/,
    );
    expect(
      makers.filter(
        (file) =>
          !/^(app\.ts|main\.ts|embedded\/.*|storage\/(postgres\/(connection|database)|redis\/client)\.ts)$/.test(file),
      ),
    ).toEqual([]);
  });

  it("only storage and the embedded backends import the drivers", () => {
    const users = imports
      .filter(({ to, runtime }) => runtime && /^(postgres|ioredis)$/.test(to))
      .map(({ from }) => from);
    expect(users.filter((file) => !/^(storage|embedded)\//.test(file))).toEqual([]);
  });

  it("SSRF: no code makes outbound requests, so no request can cause one", () => {
    const callers =
      /^import (?!type )\{[^}]*(?<!type )\b(request|get|connect|createConnection|Agent|fetch)\b[^}]*\} from "(node:(http|https|http2|net|tls)|undici)"/m;
    const fetching = /\bglobalThis\.fetch\(|\bawait fetch\(|[=(] ?fetch\(/;
    const asking = [...filesMatching(callers), ...filesMatching(fetching)];
    // At the start, the embedded PostgreSQL is asked at its socket in DATA_DIR whether it runs.
    expect(asking.filter((file) => !/^(cli|client)\/|^embedded\/postgres\.ts$/.test(file))).toEqual([]);
    expect(asking).not.toEqual([]);
  });

  it("generated code imports nothing from src", () => {
    const generated = readdirSync(join(root, "../gen"), { recursive: true, encoding: "utf8" });
    const texts = generated
      .filter((file) => file.endsWith(".ts"))
      .map((file) => readFileSync(join(root, "../gen", file), "utf8"));
    expect(texts.filter((text) => /from "[^"]*\/src\//.test(text))).toEqual([]);
  });
});

/** Every cycle, once, as the nodes along it. */
function cycles(nodes: readonly string[], next: (node: string) => readonly string[]): string[] {
  const done = new Set<string>();
  const closed: string[] = [];
  const walk = (node: string, path: readonly string[]) => {
    if (path.includes(node)) closed.push([...path.slice(path.indexOf(node)), node].join(" -> "));
    if (path.includes(node) || done.has(node)) return;
    for (const to of next(node)) walk(to, [...path, node]);
    done.add(node);
  };
  for (const node of nodes) walk(node, []);
  return closed;
}
