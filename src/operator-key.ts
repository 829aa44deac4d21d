/** Whether this can be the operator's credential: what a header can carry, and nobody guesses. */
export function isOperatorKey(text: string): boolean {
  return /^[!-~]{24,}$/.test(text);
}
