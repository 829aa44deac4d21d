// By hand: in postgres.js, each part of a statement is a promise with two closures, which live as long as the call. An update
// of a key has 40 parts, and took 7 % more CPU time with them.
import type { Row } from "postgres";
import type { Sql } from "./connection.js";

export type Rows = readonly (Row | undefined)[];

/** A statement or a part of one, with its parameters. */
export class Fragment<T extends Rows = Rows> {
  /** The type of the rows; there is no such property. */
  declare readonly rows: T;

  constructor(
    readonly strings: readonly string[],
    readonly values: readonly Value[],
  ) {}
}

/** A parameter of a type that postgres.js cannot infer. */
class TypedValue {
  constructor(
    readonly value: unknown,
    readonly type: number,
  ) {}
}

/** A part of a statement, or the value of a parameter. */
type Value = Fragment | TypedValue | string | number | bigint | boolean | Date | Uint8Array | readonly string[] | null;

/** Builds a statement or a part of one. Values that are not parts of a statement become parameters. */
export function sql<T extends Rows = Row[]>(text: TemplateStringsArray, ...values: readonly Value[]): Fragment<T>;
/** The name of a table or a column. */
export function sql(name: string): Fragment;
export function sql(text: TemplateStringsArray | string, ...values: readonly Value[]): Fragment {
  return new Fragment(typeof text === "string" ? [`"${text.replaceAll('"', '""')}"`] : text, values);
}

/** A parameter for a text[] column. */
export function textArrayParameter(value: readonly string[]) {
  return new TypedValue(value, textArrayType);
}

/** A parameter for a json column. `sql.json` of postgres.js would send jsonb, which loses the order of keys. */
export function jsonParameter(value: object) {
  return new TypedValue(value, jsonType);
}

export const textArrayType = 1009;
const jsonType = 114;

/**
 * Sends a statement, prepared unless there are too many variants of it. It never throws: a statement with a parameter that
 * cannot be sent rejects.
 */
export function send<T extends Rows>(connection: Sql, fragment: Fragment<T>) {
  const parameters: unknown[] = [];
  const text = textOf(fragment, parameters, connection);
  return connection.unsafe<Row[]>(
    text,
    parameters as never[],
    isPrepared(fragment, text, parameters) ? prepared : unprepared,
  );
}

/** Not `simple`: otherwise postgres.js does not prepare a statement without parameters. */
const prepared = { prepare: true, simple: false };
const unprepared = { prepare: false, simple: false };

/**
 * How many variants of a statement are prepared. Each connection keeps them until it ends, with up to 0.35 MB in PostgreSQL
 * for each. A caller chooses which optional parts a statement has: with thousands of variants, PostgreSQL would run out of
 * memory. Of the variants that exist, a service uses few.
 */
const maxPrepared = 20;

/** postgres.js prepares a text again if other parameters have a type. Null has none. */
interface Variant {
  readonly text: string;
  readonly typed: readonly boolean[];
}

/**
 * The variants that are prepared, by the call site of the statement, and its first part: only that differs between
 * lists. So a caller who sends too many variants of one operation does not slow down others.
 */
const preparedVariants = new WeakMap<readonly string[], WeakMap<readonly string[], Variant[]>>();

/** The same for a variant at any time: once prepared, it stays prepared. */
function isPrepared({ strings, values }: Fragment, text: string, parameters: readonly unknown[]): boolean {
  const [first] = values;
  // The name of a table has no call site: it is a new array each time.
  const part = first instanceof Fragment && "raw" in first.strings ? first.strings : strings;
  const variants = preparedVariants.get(strings)?.get(part) ?? addSite(strings, part);
  // Not a Set: computing the hash of a long text takes longer than these comparisons, most of which end at the length.
  for (const variant of variants) if (variant.text === text && hasTypes(variant, parameters)) return true;
  if (variants.length === maxPrepared) return false;
  variants.push({ text, typed: parameters.map(isTyped) });
  return true;
}

function addSite(strings: readonly string[], part: readonly string[]): Variant[] {
  const byPart = preparedVariants.get(strings) ?? new WeakMap<readonly string[], Variant[]>();
  const variants: Variant[] = [];
  preparedVariants.set(strings, byPart.set(part, variants));
  return variants;
}

function hasTypes({ typed }: Variant, parameters: readonly unknown[]): boolean {
  for (let index = 0; index < typed.length; index++) if (isTyped(parameters[index]) !== typed[index]) return false;
  return true;
}

/** Whether postgres.js sends the type of a parameter. */
function isTyped(parameter: unknown): boolean {
  return parameter !== null && typeof parameter !== "string" && typeof parameter !== "number";
}

function textOf({ strings, values }: Fragment, parameters: unknown[], connection: Sql): string {
  let text = strings[0] as string;
  for (let index = 0; index < values.length; index++) {
    const value = values[index];
    if (value instanceof Fragment) text += textOf(value, parameters, connection);
    else {
      parameters.push(value instanceof TypedValue ? connection.typed(value.value as never, value.type) : value);
      text += `$${parameters.length}`;
    }
    text += strings[index + 1];
  }
  return text;
}
