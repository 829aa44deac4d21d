// By hand, what JSON.parse lets pass: a member that is given twice. Whoever looked at the request on its way may have
// judged the other one. Nothing on npm finds it at the speed that calls are read with.
import { type FieldError, invalidInput } from "../errors.js";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads the JSON of a body; throws `invalid_input` if it is not UTF-8, not JSON, or gives a member twice. */
export function readJson(body: Buffer): unknown {
  const text = decode(body);
  const json = parse(text);
  const mistake = isPlain(text, json) ? undefined : findDuplicate(text);
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

/** Each member takes a colon: if there are no more of these than members that were read, each was given once. */
function isPlain(text: string, json: unknown): boolean {
  if (typeof json !== "object" || json === null || Array.isArray(json)) return true; // refused by whoever reads it
  let colons = 0;
  for (let at = text.indexOf(":"); at !== -1; at = text.indexOf(":", at + 1)) colons += 1;
  return colons === Object.keys(json).length;
}

/** Finds a member that is given twice, at any depth of an object that is known to be JSON. */
function findDuplicate(text: string): FieldError | undefined {
  /** The names in each object that is open; undefined for an array. */
  const open: (Set<string> | undefined)[] = [];
  let location = "";
  let isName = false;
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
        // Inside a field names are not repeated: they are the caller's own.
        if (names.has(name)) {
          return { location, message: `${open.length === 1 ? "is" : "has a member that is"} given more than once` };
        }
        names.add(name);
      }
      isName = false;
      at = end;
    }
  }
  return undefined;
}

/** Where the text ends that begins here: at a quote that is not escaped, by an odd number of backslashes. */
function endOfText(text: string, begin: number): number {
  for (let end = text.indexOf('"', begin + 1); ; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text[before - 1] === "\\") before -= 1;
    if ((end - before) % 2 === 0) return end;
  }
}
