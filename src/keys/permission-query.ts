import { LRUCache } from "lru-cache";
import { invalidInput } from "../errors.js";

// Errors name a position and never quote the query: a client may have put a secret into the wrong field.

/** A query over permissions, such as `a AND (b OR c)`. Evaluates to whether the permissions of a key satisfy it. */
export type PermissionQuery = (has: (permission: string) => boolean) => boolean;

/** The heap that parsed queries may take, in addition to CACHE_MB: enough for hundreds of queries of a usual length. */
const maxCacheBytes = 2 * 1024 * 1024;

/** The heap of one query, measured for the worst case: names of one letter, each with two functions and a token. */
const bytesOf = (text: string) => 512 + 64 * text.length;

/** Parses queries and caches the most recent ones: callers repeat the same few queries. */
export function createQueryCache(): (text: string) => PermissionQuery {
  const parsed = new LRUCache<string, PermissionQuery>({
    maxSize: maxCacheBytes,
    sizeCalculation: (_query, text) => bytesOf(text),
  });
  return (text) => {
    const cached = parsed.get(text);
    if (cached !== undefined) return cached;
    const query = parsePermissionQuery(text);
    parsed.set(text, query);
    return query;
  };
}

/**
 * Parses a query: permission names, AND, OR and parentheses; AND binds more tightly. Throws `invalid_input` with the
 * position of the error.
 *
 *     or = and { OR and }     and = primary { AND primary }     primary = name | "(" or ")"
 */
export function parsePermissionQuery(text: string): PermissionQuery {
  const tokens = tokenize(text);
  let next = 0;

  function parseOr(): PermissionQuery {
    const operands = [parseAnd()];
    while (accept("OR")) operands.push(parseAnd());
    return single(operands) ?? ((has) => operands.some((operand) => operand(has)));
  }

  function parseAnd(): PermissionQuery {
    const operands = [parsePrimary()];
    while (accept("AND")) operands.push(parsePrimary());
    return single(operands) ?? ((has) => operands.every((operand) => operand(has)));
  }

  function parsePrimary(): PermissionQuery {
    if (accept("(")) {
      const inner = parseOr();
      if (!accept(")")) throw expected(") or AND or OR");
      return inner;
    }
    const token = tokens[next];
    if (token?.kind !== "name") throw expected("a permission or (");
    next += 1;
    return (has) => has(token.text);
  }

  function accept(kind: Token["kind"]): boolean {
    if (tokens[next]?.kind !== kind) return false;
    next += 1;
    return true;
  }

  /** Positions count characters from 1. */
  function expected(what: string) {
    const position = (tokens[next]?.at ?? text.length) + 1;
    return queryError(`at position ${position}: expected ${what}${tokens[next] ? "" : ", but the query ends"}`);
  }

  const query = parseOr();
  if (next < tokens.length) throw expected("AND or OR");
  return query;
}

function single<T>(list: readonly T[]): T | undefined {
  return list.length === 1 ? list[0] : undefined;
}

interface Token {
  readonly kind: "name" | "AND" | "OR" | "(" | ")";
  readonly text: string;
  readonly at: number;
}

/** As the proto defines it. A name with a wildcard stands for itself: only a key with this permission or a wider one has it. */
const permissionName = /^(\*|[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*(\.\*)?)$/;

/** Each opening parenthesis costs a level of the call stack. No real query needs this many. */
const maxParentheses = 100;

function tokenize(text: string): Token[] {
  const tokens = [...text.matchAll(/[()]|[^\s()]+/g)].map(({ 0: text, index: at }): Token => {
    if (text === "(" || text === ")") return { kind: text, text, at };
    const word = text.toUpperCase();
    if (word === "AND" || word === "OR") return { kind: word, text, at };
    if (!permissionName.test(text)) {
      throw queryError(`at position ${at + 1}: expected a permission name, such as documents.read`);
    }
    return { kind: "name", text, at };
  });
  const excess = tokens.filter(({ kind }) => kind === "(")[maxParentheses];
  if (excess) throw queryError(`at position ${excess.at + 1}: more than ${maxParentheses} parentheses`);
  return tokens;
}

function queryError(message: string) {
  return invalidInput([{ location: "permissions", message }]);
}
