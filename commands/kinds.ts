/** What the value of an option can be. */
export interface Kind<Value> {
  /** In words. */
  readonly must: string;
  /** Undefined for a text that is not of this kind. */
  read(text: string): Value | undefined;
}

export const numberAbove0 = numbers("a number above 0", (number) => number > 0);

export const wholeNumberAbove0 = numbers(
  "a whole number above 0",
  (number) => Number.isSafeInteger(number) && number > 0,
);

export function numberOfAtLeast(least: number): Kind<number> {
  return numbers(`a number of at least ${least}`, (number) => number >= least);
}

/** Whether it can be written is seen when it is. */
export const file: Kind<string> = { must: "the name of a file", read: (text) => text };

export function oneOf(names: readonly string[]): Kind<string> {
  const list = new Intl.ListFormat("en", { type: "disjunction" }).format(names);
  return { must: list, read: (text) => names.find((name) => name === text) };
}

function numbers(must: string, isRight: (number: number) => boolean): Kind<number> {
  return {
    must,
    read(text) {
      const number = Number(text);
      return isRight(number) ? number : undefined;
    },
  };
}
