// Refuses what JSON.parse accepts: duplicate members, because a proxy may have checked the other one; numbers that
// JSON.parse would alter silently; and values that are deeper, larger or more numerous than in any valid request,
// because every later step would multiply their cost. Written by hand, because no npm package checks this at the speed
// at which calls are read.
import { type FieldError, invalidInput } from "../../errors.js";
import {
  maxDepth,
  maxFieldBytes,
  maxMembers,
  maxValues,
  repeated,
  tooDeep,
  tooLarge,
  tooManyItems,
  tooManyMembers,
  tooManyValues,
} from "../../rpc/message-limits.js";
import type { Shape } from "./shape.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** JSON up to this length is parsed before it is scanned: it cannot cause enough work. Most bodies are smaller. */
const smallBodyBytes = 1024;

/**
 * Parses the JSON of a body. Throws `invalid_input` if it is not UTF-8, is not JSON, exceeds the limits of a request,
 * has a duplicate member, or has, nested in a field, a number that would be returned as another one.
 *
 * @param shape of the body
 * @param fieldName the field whose value is the whole body; undefined if the body is the whole message
 */
export function parseStrictJson(body: Buffer, shape: Shape, fieldName?: string): unknown {
  const text = decode(body);
  const isSmall = text.length <= smallBodyBytes;
  if (!isSmall) refuse(findProblem(text, shape, fieldName));
  const json = parse(text);
  if (isSmall && !needsNoScan(text, json, shape)) refuse(findProblem(text, shape, fieldName));
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
 * Whether the body needs no further check. Each member takes a colon. If there are as many colons as parsed members of
 * messages, no member is a duplicate and no value is an object with members of its own. The remaining numbers are
 * values of fields that are validated later.
 */
function needsNoScan(text: string, json: unknown, shape: Shape): boolean {
  if (!isOfShape(json, shape)) return true; // the codec refuses it
  let colons = 0;
  for (let at = text.indexOf(":"); at !== -1; at = text.indexOf(":", at + 1)) colons += 1;
  return colons === countMembers(json, shape);
}

/** The number of members of a message, or of a list of messages, and of all messages in it. */
function countMembers(json: object, { nested, items }: Shape): number {
  let count = 0;
  if (items !== undefined) {
    for (const item of json as unknown[]) count += isOfShape(item, items) ? countMembers(item, items) : 0;
    return count;
  }
  count = Object.keys(json).length;
  if (nested.size === 0) return count;
  for (const [name, inner] of nested) {
    const value = (json as Record<string, unknown>)[name];
    if (isOfShape(value, inner)) count += countMembers(value, inner);
  }
  return count;
}

function isOfShape(json: unknown, { items }: Shape): json is object {
  return typeof json === "object" && json !== null && Array.isArray(json) === (items !== undefined);
}

/** An open message or list of messages. */
interface Frame {
  readonly shape: Shape;
  /** The names of the message's members so far, at most `maxMembers`. */
  readonly names: string[];
  /** The current member of the message, or item of the list. */
  name: string | undefined;
  index: number;
}

/** More than the number of characters between a value and the next one: `:`, `,`, `"`, and the ends of messages. */
const separatorSize = 32;

/**
 * Finds the first duplicate member, number that cannot be represented, or field that is too deep or too large. It does
 * so in one pass that allocates only the names in the open objects. The text need not be JSON: JSON.parse decides that.
 */
function findProblem(text: string, shape: Shape, fieldName: string | undefined): FieldError | undefined {
  /** The messages, and the lists of messages, that are open. */
  const frames: Frame[] = [];
  /** Within a single value: the member names of each open object; undefined for an array. */
  const open: (Set<string> | undefined)[] = [];
  /** The shape of the next value. Undefined if it must be a single value. */
  let expected: Shape | undefined = shape;
  let isName = false;
  /** A lower bound for the size of the current value, as JSON without spaces. */
  let size = 0;
  let values = 0;
  const fieldError = (message: string): FieldError => ({ location: locationOf(frames, fieldName), message });
  /** An error of the innermost open message or list itself. */
  const frameError = (message: string) => ({ location: locationOf(frames.slice(0, -1), fieldName), message });
  for (let at = 0; at < text.length; at++) {
    const character = text.charCodeAt(at);
    if (character <= space) continue;
    size += 1;
    if (size > maxFieldBytes) return fieldError(tooLarge);
    if (values > maxValues) return { location: "body", message: tooManyValues };
    if (character === brace || character === bracket) {
      values += 1;
      isName = character === brace;
      if (open.length === 0 && expected !== undefined && isName === (expected.items === undefined)) {
        frames.push({ shape: expected, names: [], name: undefined, index: 0 });
        expected = expected.items;
      } else {
        open.push(isName ? new Set() : undefined);
        if (open.length > maxDepth) return fieldError(tooDeep);
      }
    } else if (character === endBrace || character === endBracket) {
      if (open.length > 0) open.pop();
      else frames.pop();
    } else if (character === comma) {
      values += 1;
      const frame = open.length === 0 ? frames.at(-1) : undefined;
      isName = frame === undefined ? open.at(-1) !== undefined : frame.shape.items === undefined;
      if (frame?.shape.maxItems !== undefined) {
        frame.index += 1;
        if (frame.index === frame.shape.maxItems) return frameError(tooManyItems(frame.shape.maxItems));
        expected = frame.shape.items;
        size = -separatorSize;
      }
    } else if (character === quote) {
      const end = endOfString(text, at);
      const content = text.slice(at + 1, end);
      // An escape takes up to six characters for one. The two quotes are included.
      size += 1 + (content.includes("\\") ? content.length / 6 : content.length);
      if (isName) {
        const name = unescaped(content);
        const frame = open.length === 0 ? frames.at(-1) : undefined;
        if (frame !== undefined) {
          if (frame.names.length === maxMembers) return frameError(tooManyMembers);
          frame.name = name;
          if (frame.names.includes(name)) return fieldError(repeated);
          frame.names.push(name);
          expected = frame.shape.nested.get(name);
          size = -separatorSize;
        } else {
          const names = open.at(-1);
          // The error does not quote names inside a value: they are the caller's own data.
          if (names?.has(name)) return fieldError("has a member that is given more than once");
          names?.add(name);
        }
      }
      isName = false;
      at = end;
    } else if (character === minus || (character >= zero && character <= nine)) {
      // `size` is a lower bound, and a response may write the number shorter: 0.00 as 0. So it counts as one character.
      const number = numberAt(text, at);
      if (number.length > maxFieldBytes) return fieldError(tooLarge);
      if (isAltered(number)) return fieldError(`${open.length === 0 ? "is" : "has"} ${inexactNumber}`);
      at += number.length - 1;
    }
  }
  return undefined;
}

/** The path of the current field: `credits.refill` or `limits[0].name`. */
function locationOf(frames: readonly Frame[], fieldName: string | undefined): string {
  let location = fieldName;
  for (const { shape, name, index } of frames) {
    if (shape.items !== undefined) location = `${location}[${index}]`;
    else if (name !== undefined) location = location === undefined ? name : `${location}.${name}`;
  }
  return location ?? "body";
}

const [space, quote, comma, minus, zero, nine, bracket, endBracket, brace, endBrace] = [...' ",-09[]{}'].map(
  (character) => character.charCodeAt(0),
) as [number, number, number, number, number, number, number, number, number, number];

const inexactNumber = "a number that cannot be represented exactly: send it as a string";

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
