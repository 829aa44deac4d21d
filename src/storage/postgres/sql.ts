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

/** Sends a prepared statement. It never throws: a statement with a parameter that cannot be sent rejects. */
export function send<T extends Rows>(connection: Sql, fragment: Fragment<T>) {
  const parameters: unknown[] = [];
  const text = textOf(fragment, parameters, connection);
  return connection.unsafe<Row[]>(text, parameters as never[], prepared);
}

/** Not `simple`: otherwise postgres.js does not prepare a statement without parameters. */
const prepared = { prepare: true, simple: false };

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
