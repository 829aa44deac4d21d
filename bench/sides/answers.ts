/** What a side that does nothing of its own is to answer: what Latchkey answered. */
export function givenAnswer(): string {
  const answer = process.env["ANSWER"];
  if (answer === undefined) throw new Error("ANSWER is not set");
  return answer;
}

/** Tells the benchmark where a side listens. */
export function tellAddress(address: string): void {
  process.stdout.write(`ready on ${address}\n`);
}
