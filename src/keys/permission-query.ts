import { LRUCache } from "lru-cache";
import { invalidInput } from "../errors.js";

// Mistakes are told by their position, never by quoting: a secret may have been typed into the wrong field.

/** A query over permissions, such as `a AND (b OR c)`: answers by asking which of them are held. */
export type PermissionQuery = (holds: (permission: string) => boolean) => boolean;

/** What parsed queries may take of the heap, beside CACHE_MB: hundreds of queries of a usual length. */
const mostBytes = 2 * 1024 * 1024;

/** What a query takes: measured for the worst, names of one letter, of which each is two functions and a token. */
const bytesOf = (text: string) => 512 + 64 * text.length;

/** Parses queries, and keeps the latest: callers ask the same few questions over and over. */
export function createQueryCache(): (text: string) => PermissionQuery {
  const parsed = new LRUCache<string, PermissionQuery>({
    maxSize: mostBytes,
    sizeCalculation: (_query, text) => bytesOf(text),
  });
  return (text) => {
    const known = parsed.get(text);
    if (known !== undefined) return known;
    const query = parsePermissionQuery(text);
    parsed.set(text, query);
    return query;
  };
}

/**
 * Parses a query: permission names, AND, OR and parentheses; AND binds more tightly. Throws `invalid_input` that names
 * the position.
 *
 *     either = both { OR both }     both = one { AND one }     one = name | "(" either ")"
 */
export function parsePermissionQuery(text: string): PermissionQuery {
  const tokens = tokenize(text);
  let next = 0;

  function either(): PermissionQuery {
    const options = [both()];
    while (takes("OR")) options.push(both());
    return only(options) ?? ((holds) => options.some((option) => option(holds)));
  }

  function both(): PermissionQuery {
    const parts = [one()];
    while (takes("AND")) parts.push(one());
    return only(parts) ?? ((holds) => parts.every((part) => part(holds)));
  }

  function one(): PermissionQuery {
    if (takes("(")) {
      const inner = either();
      if (!takes(")")) throw expected(") or AND or OR");
      return inner;
    }
    const token = tokens[next];
    if (token?.kind !== "name") throw expected("a permission or (");
    next += 1;
    return (holds) => holds(token.text);
  }

  function takes(kind: Token["kind"]): boolean {
    if (tokens[next]?.kind !== kind) return false;
    next += 1;
    return true;
  }

  /** Positions count characters from 1, as people do. */
  function expected(what: string) {
    const position = (tokens[next]?.at ?? text.length) + 1;
    return failure(`at position ${position}: expected ${what}${tokens[next] ? "" : ", but the query ends"}`);
  }

  const query = either();
  if (next < tokens.length) throw expected("AND or OR");
  return query;
}

function only<T>(list: readonly T[]): T | undefined {
  return list.length === 1 ? list[0] : undefined;
}

interface Token {
  readonly kind: "name" | "AND" | "OR" | "(" | ")";
  readonly text: string;
  readonly at: number;
}

/** Parentheses cost a level of the stack each; nobody needs this many. */
const deepest = 100;

function tokenize(text: string): Token[] {
  const tokens = [...text.matchAll(/[()]|[^\s()]+/g)].map(({ 0: text, index: at }): Token => {
    if (text === "(" || text === ")") return { kind: text, text, at };
    const word = text.toUpperCase();
    if (word === "AND" || word === "OR") return { kind: word, text, at };
    if (!/^[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*$/.test(text)) {
      throw failure(`at position ${at + 1}: expected a permission's name, such as documents.read`);
    }
    return { kind: "name", text, at };
  });
  const tooDeep = tokens.filter(({ kind }) => kind === "(")[deepest];
  if (tooDeep) throw failure(`at position ${tooDeep.at + 1}: more than ${deepest} parentheses`);
  return tokens;
}

function failure(message: string) {
  return invalidInput([{ location: "permissions", message }]);
}
