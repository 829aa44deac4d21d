// By hand, what JSON.parse lets pass: a member that is given twice, since whoever looked at the request on its way may have
// judged the other one; a number that it would alter without a word; and values that are deeper, larger or more than any
// request has, of which every later step would make a multiple. Nothing on npm finds them at the speed that calls are read
// with.
import { type FieldError, invalidInput } from "../../errors.js";
import {
  maxDepth,
  maxFieldBytes,
  maxMembers,
  smallBody,
  tooDeep,
  tooLarge,
  tooManyMembers,
} from "../../rpc/message-limits.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads the JSON of a body; throws `invalid_input` if it is not UTF-8, not JSON, is beyond the bounds of a request, gives a
 * member twice, or has, below its fields, a number that would come back as another one.
 */
export function readJson(body: Buffer): unknown {
  const text = decode(body);
  const isSmall = text.length <= smallBody;
  if (!isSmall) refuse(findMistake(text));
  const json = parse(text);
  if (isSmall && !isPlain(text, json)) refuse(findMistake(text));
  return json;
}

function refuse(mistake: FieldError | undefined): void {
  if (mistake !== undefined) throw invalidInput([mistake]);
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

function notJson(why: string) {
  return invalidInput([{ location: "body", message: `is not valid JSON: ${why}` }]);
}

/** V8 quotes from the text, which may hold a secret. What it says without quoting tells the place well enough. */
function reasonOf(error: unknown): string {
  const { message } = error as SyntaxError;
  const [unexpected] = /^Unexpected token '.'/su.exec(message) ?? [];
  return unexpected ?? (message.includes('"') ? "it is not a JSON value" : message);
}

/**
 * Each member takes a colon: if there are no more of these than members that were read, each was given once, and none is an
 * object with members of its own. What numbers are left are of fields that have bounds.
 */
function isPlain(text: string, json: unknown): boolean {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return true; // refused by whoever reads it
  let colons = 0;
  for (let at = text.indexOf(":"); at !== -1; at = text.indexOf(":", at + 1)) colons += 1;
  return colons === Object.keys(json).length;
}

/**
 * Finds the first member that is given twice, number that cannot be kept, or field that is too deep or too large, in one
 * pass that builds nothing but the names of the objects that are open. The text need not be JSON: JSON.parse decides that.
 */
function findMistake(text: string): FieldError | undefined {
  /** The names in each object that is open; undefined for an array. */
  const open: (Set<string> | undefined)[] = [];
  let location: string | undefined;
  let isName = false;
  /** How large the field is at least, as JSON without spaces. */
  let size = 0;
  const mistake = (message: string): FieldError => ({ location: location ?? "body", message });
  // Inside a field names are not repeated: they are the caller's own.
  const has = (what: string) => mistake(`${open.length === 1 ? "is" : "has"} ${what}`);
  for (let at = 0; at < text.length; at++) {
    const character = text.charCodeAt(at);
    if (character <= space) continue;
    size += 1;
    if (size > maxFieldBytes) return mistake(tooLarge);
    if (character === brace || character === bracket) {
      isName = character === brace;
      open.push(isName ? new Set() : undefined);
      if (open.length > 1 + maxDepth) return mistake(tooDeep);
    } else if (character === endBrace || character === endBracket) {
      open.pop();
    } else if (character === comma) {
      isName = open.at(-1) !== undefined;
    } else if (character === quote) {
      const end = endOfText(text, at);
      const content = text.slice(at + 1, end);
      const names = open.at(-1);
      // An escape takes up to six characters for one; its two quotes are counted with it.
      size += 1 + (content.includes("\\") ? content.length / 6 : content.length);
      if (isName && names !== undefined) {
        const name = unescaped(content);
        if (open.length === 1) {
          location = name;
          size = -':,"'.length; // what stands between it and the next name
          if (names.size === maxMembers) return { location: "body", message: tooManyMembers };
        }
        if (names.has(name)) return has(open.length === 1 ? "given more than once" : memberTwice);
        names.add(name);
      }
      isName = false;
      at = end;
    } else if (character === minus || (character >= zero && character <= nine)) {
      const number = numberAt(text, at);
      size += number.length - 1;
      if (size > maxFieldBytes) return mistake(tooLarge);
      if (isAltered(number)) return has("a number that cannot be kept as it is: send it as text");
      at += number.length - 1;
    }
  }
  return undefined;
}

const [space, quote, comma, minus, zero, nine, bracket, endBracket, brace, endBrace] = [...' ",-09[]{}'].map(
  (character) => character.charCodeAt(0),
) as [number, number, number, number, number, number, number, number, number, number];

const memberTwice = "a member that is given more than once";

/** As it stands if its escapes are wrong: JSON.parse refuses it for these. */
function unescaped(content: string): string {
  if (!content.includes("\\")) return content;
  try {
    return JSON.parse(`"${content}"`);
  } catch {
    return content;
  }
}

const ofNumber = /[-+.\deE]*/y;

function numberAt(text: string, begin: number): string {
  ofNumber.lastIndex = begin;
  return ofNumber.exec(text)?.[0] ?? "";
}

/**
 * Whether a number would come back as another: an integer with too many digits, or what is too small not to be 0. All others
 * are rounded to the nearest that a double holds, as everywhere. What is too large for one is refused behind every protocol.
 */
function isAltered(number: string): boolean {
  if (number.length <= 15 && !number.includes("e") && !number.includes("E")) return false;
  const value = Number(number);
  if (value === 0) return /^[^eE]*[1-9]/.test(number);
  // With a leading zero it is no JSON, which JSON.parse says.
  if (!Number.isFinite(value) || !/^-?[1-9]\d*$/.test(number)) return false;
  const digits = value.toExponential().replace(/e.*|[-.]/g, "");
  return digits !== withoutZeros(number.slice(number.startsWith("-") ? 1 : 0));
}

/** Not by `/0+$/`, which takes the square of their number if anything follows. */
function withoutZeros(number: string): string {
  let end = number.length;
  while (number.charCodeAt(end - 1) === zero) end -= 1;
  return number.slice(0, end);
}

/** Where the text ends that begins here: at a quote that is not escaped, by an odd number of backslashes. */
function endOfText(text: string, begin: number): number {
  for (let end = text.indexOf('"', begin + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text[before - 1] === "\\") before -= 1;
    if ((end - before) % 2 === 0) return end;
  }
  return text.length;
}
