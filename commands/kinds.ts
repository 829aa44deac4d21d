/** The type of an option's value. */
export interface Kind<Value> {
  /** A description for error messages. */
  readonly must: string;
  /** Parses a text. Undefined if the text is invalid. */
  read(text: string): Value | undefined;
}

export const numberAbove0 = numbers("a number above 0", (number) => number > 0);

export const wholeNumberAbove0 = numbers(
  "a whole number above 0",
  (number) => Number.isSafeInteger(number) && number > 0,
);

export function numberOfAtLeast(min: number): Kind<number> {
  return numbers(`a number of at least ${min}`, (number) => number >= min);
}

/** Whether the file is writable shows only when it is written. */
export const file: Kind<string> = { must: "the name of a file", read: (text) => text };

export function oneOf(names: readonly string[]): Kind<string> {
  const list = new Intl.ListFormat("en", { type: "disjunction" }).format(names);
  return { must: list, read: (text) => names.find((name) => name === text) };
}

function numbers(must: string, isValid: (number: number) => boolean): Kind<number> {
  return {
    must,
    read(text) {
      const number = Number(text);
      return isValid(number) ? number : undefined;
    },
  };
}
