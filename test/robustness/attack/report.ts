import type { Outcome } from "./attack.js";

/** The result of an attack. */
export interface Result extends Outcome {
  readonly name: string;
  readonly title: string;
  readonly ms: number;
}

/** The results as a text table. */
export function toText(results: readonly Result[]): string {
  const width = Math.max(...results.map(({ name }) => name.length));
  const rows = results.map(({ name, title, withstood, observed, ms }) =>
    [
      `${withstood ? "withstood" : "FAILED   "}  ${name.padEnd(width)}  ${title}  (${(ms / 1_000).toFixed(1)} s)`,
      `${" ".repeat(11)}${" ".repeat(width)}  ${observed}`,
    ].join("\n"),
  );
  const broken = results.filter(({ withstood }) => !withstood).length;
  const passed = results.length - broken;
  return [...rows, "", `${passed} passed, ${broken} failed`].join("\n");
}

/** The results as JSON. */
export function toJson(results: readonly Result[]): string {
  return JSON.stringify({ broken: results.filter(({ withstood }) => !withstood).length, results }, undefined, 2);
}
