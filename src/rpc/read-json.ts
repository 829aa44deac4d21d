// By hand, what JSON.parse lets pass: a member that is given twice, since whoever looked at the request on its way may have
// judged the other one; and a number that it would alter without a word. Nothing on npm finds them at the speed that calls
// are read with.
import { type FieldError, invalidInput } from "../errors.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads the JSON of a body; throws `invalid_input` if it is not UTF-8, not JSON, gives a member twice, or has, below its
 * fields, a number that would come back as another one.
 */
export function readJson(body: Buffer): unknown {
  const text = decode(body);
  const json = parse(text);
  const mistake = isPlain(text, json) ? undefined : findMistake(text);
  if (mistake !== undefined) throw invalidInput([mistake]);
  return json;
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

/** Finds a member that is given twice, or a number that cannot be kept, at any depth of an object that is known to be JSON. */
function findMistake(text: string): FieldError | undefined {
  /** The names in each object that is open; undefined for an array. */
  const open: (Set<string> | undefined)[] = [];
  let location = "";
  let isName = false;
  // Inside a field names are not repeated: they are the caller's own.
  const mistake = (what: string) => ({ location, message: `${open.length === 1 ? "is" : "has"} ${what}` });
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === "{" || character === "[") {
      isName = character === "{";
      open.push(isName ? new Set() : undefined);
    } else if (character === "}" || character === "]") {
      open.pop();
    } else if (character === ",") {
      isName = open.at(-1) !== undefined;
    } else if (character === '"') {
      const end = endOfText(text, at);
      const names = open.at(-1);
      if (isName && names !== undefined) {
        const name: string = JSON.parse(text.slice(at, end + 1));
        if (open.length === 1) location = name;
        if (names.has(name))
          return mistake(open.length === 1 ? "given more than once" : "a member that is given more than once");
        names.add(name);
      }
      isName = false;
      at = end;
    } else if (character === "-" || (character !== undefined && character >= "0" && character <= "9")) {
      const number = numberAt(text, at);
      if (isAltered(number)) return mistake("a number that cannot be kept as it is: send it as text");
      at += number.length - 1;
    }
  }
  return undefined;
}

function numberAt(text: string, begin: number): string {
  let end = begin + 1;
  while ("0123456789.eE+-".includes(text[end] ?? "}")) end += 1;
  return text.slice(begin, end);
}

/**
 * Whether a number would come back as another: an integer with too many digits, or what is too small not to be 0. All others
 * are rounded to the nearest that a double holds, as everywhere. What is too large for one is refused behind every door.
 */
function isAltered(number: string): boolean {
  if (number.length <= 15 && !number.includes("e") && !number.includes("E")) return false;
  const value = Number(number);
  if (value === 0) return /^[^eE]*[1-9]/.test(number);
  if (!Number.isFinite(value) || !/^-?\d+$/.test(number)) return false;
  const digits = value.toExponential().replace(/e.*|[-.]/g, "");
  return digits !== number.replace(/^-|0+$/g, "");
}

/** Where the text ends that begins here: at a quote that is not escaped, by an odd number of backslashes. */
function endOfText(text: string, begin: number): number {
  for (let end = text.indexOf('"', begin + 1); ; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text[before - 1] === "\\") before -= 1;
    if ((end - before) % 2 === 0) return end;
  }
}
