// Refuses what JSON.parse accepts: duplicate members, because a proxy may have checked the other one; numbers that
// JSON.parse would alter silently; and values that are deeper, larger or more numerous than in any valid request,
// because every later step would multiply their cost. Written by hand, because no npm package checks this at the speed
// at which calls are read.
import { type FieldError, invalidInput } from "../../errors.js";
import {
  maxDepth,
  maxFieldBytes,
  maxMembers,
  smallBodyBytes,
  tooDeep,
  tooLarge,
  tooManyMembers,
} from "../../rpc/message-limits.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses the JSON of a body. Throws `invalid_input` if it is not UTF-8, is not JSON, exceeds the limits of a request,
 * has a duplicate member, or has, nested in a field, a number that would be returned as another one.
 */
export function parseStrictJson(body: Buffer): unknown {
  const text = decode(body);
  const isSmall = text.length <= smallBodyBytes;
  if (!isSmall) refuse(findProblem(text));
  const json = parse(text);
  if (isSmall && !needsNoScan(text, json)) refuse(findProblem(text));
  return json;
}

function refuse(problem: FieldError | undefined): void {
  if (problem !== undefined) throw invalidInput([problem]);
}

function decode(body: Buffer): string {
  try {
    return utf8.decode(body);
  } catch {
    throw notJson("it is not UTF-8");
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw notJson(reasonOf(error));
  }
}

function notJson(reason: string) {
  return invalidInput([{ location: "body", message: `is not valid JSON: ${reason}` }]);
}

/** V8's message may quote the text, which may contain a secret. Only the parts that do not quote it are returned. */
function reasonOf(error: unknown): string {
  const { message } = error as SyntaxError;
  const [unexpected] = /^Unexpected token '.'/su.exec(message) ?? [];
  return unexpected ?? (message.includes('"') ? "it is not a JSON value" : message);
}

/**
 * Whether the body needs no further check. Each member takes a colon. If there are as many colons as parsed members, no
 * member is a duplicate and none is an object with members of its own. The remaining numbers are values of fields that
 * are validated later.
 */
function needsNoScan(text: string, json: unknown): boolean {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return true; // the codec refuses it
  let colons = 0;
  for (let at = text.indexOf(":"); at !== -1; at = text.indexOf(":", at + 1)) colons += 1;
  return colons === Object.keys(json).length;
}

/**
 * Finds the first duplicate member, number that cannot be represented, or field that is too deep or too large. It does
 * so in one pass that allocates only the names in the open objects. The text need not be JSON: JSON.parse decides that.
 */
function findProblem(text: string): FieldError | undefined {
  /** The member names of each open object; undefined for an array. */
  const open: (Set<string> | undefined)[] = [];
  let location: string | undefined;
  let isName = false;
  /** A lower bound for the size of the field, as JSON without spaces. */
  let size = 0;
  const fieldError = (message: string): FieldError => ({ location: location ?? "body", message });
  // The error does not quote names inside a field: they are the caller's own data.
  const contains = (what: string) => fieldError(`${open.length === 1 ? "is" : "has"} ${what}`);
  for (let at = 0; at < text.length; at++) {
    const character = text.charCodeAt(at);
    if (character <= space) continue;
    size += 1;
    if (size > maxFieldBytes) return fieldError(tooLarge);
    if (character === brace || character === bracket) {
      isName = character === brace;
      open.push(isName ? new Set() : undefined);
      if (open.length > 1 + maxDepth) return fieldError(tooDeep);
    } else if (character === endBrace || character === endBracket) {
      open.pop();
    } else if (character === comma) {
      isName = open.at(-1) !== undefined;
    } else if (character === quote) {
      const end = endOfString(text, at);
      const content = text.slice(at + 1, end);
      const names = open.at(-1);
      // An escape takes up to six characters for one. The two quotes are included.
      size += 1 + (content.includes("\\") ? content.length / 6 : content.length);
      if (isName && names !== undefined) {
        const name = unescaped(content);
        if (open.length === 1) {
          location = name;
          size = -':,"'.length; // the characters between this member and the next name
          if (names.size === maxMembers) return { location: "body", message: tooManyMembers };
        }
        if (names.has(name)) return contains(open.length === 1 ? "given more than once" : duplicateMember);
        names.add(name);
      }
      isName = false;
      at = end;
    } else if (character === minus || (character >= zero && character <= nine)) {
      const number = numberAt(text, at);
      size += number.length - 1;
      if (size > maxFieldBytes) return fieldError(tooLarge);
      if (isAltered(number)) return contains("a number that cannot be represented exactly: send it as a string");
      at += number.length - 1;
    }
  }
  return undefined;
}

const [space, quote, comma, minus, zero, nine, bracket, endBracket, brace, endBrace] = [...' ",-09[]{}'].map(
  (character) => character.charCodeAt(0),
) as [number, number, number, number, number, number, number, number, number, number];

const duplicateMember = "a member that is given more than once";

/** Returns the content unchanged if its escapes are invalid: JSON.parse refuses these later. */
function unescaped(content: string): string {
  if (!content.includes("\\")) return content;
  try {
    return JSON.parse(`"${content}"`);
  } catch {
    return content;
  }
}

const numberPattern = /[-+.\deE]*/y;

function numberAt(text: string, begin: number): string {
  numberPattern.lastIndex = begin;
  return numberPattern.exec(text)?.[0] ?? "";
}

/**
 * Whether a number would be returned as another one: an integer with too many digits, or a number so small that it
 * becomes 0. All others are rounded to the nearest double, as usual. Numbers too large for a double are refused later,
 * for every protocol.
 */
function isAltered(number: string): boolean {
  if (number.length <= 15 && !number.includes("e") && !number.includes("E")) return false;
  const value = Number(number);
  if (value === 0) return /^[^eE]*[1-9]/.test(number);
  // A leading zero is not valid JSON, which JSON.parse reports.
  if (!Number.isFinite(value) || !/^-?[1-9]\d*$/.test(number)) return false;
  const digits = value.toExponential().replace(/e.*|[-.]/g, "");
  return digits !== trimTrailingZeros(number.slice(number.startsWith("-") ? 1 : 0));
}

/** Not with `/0+$/`, which takes quadratic time if other characters follow the zeros. */
function trimTrailingZeros(number: string): string {
  let end = number.length;
  while (number.charCodeAt(end - 1) === zero) end -= 1;
  return number.slice(0, end);
}

/** The end of the string that begins here: the next quote without an odd number of backslashes before it. */
function endOfString(text: string, begin: number): number {
  for (let end = text.indexOf('"', begin + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text[before - 1] === "\\") before -= 1;
    if ((end - before) % 2 === 0) return end;
  }
  return text.length;
}
