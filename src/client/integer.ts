/** The longest time of a timer. A longer one would end at once. */
export const maxTimerMs = 2 ** 31 - 1;

/** Throws if an option is not an integer in this range. */
export function checkInteger(name: string, value: number, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw new RangeError(`The ${name} must be an integer from ${min} to ${max}.`);
}
