/** The fixed response of a baseline: a recorded response of Latchkey. */
export function fixedResponse(): string {
  const response = process.env["RESPONSE"];
  if (response === undefined) throw new Error("RESPONSE is not set");
  return response;
}

/** Prints the address of a baseline, which the benchmark reads. */
export function printAddress(address: string): void {
  process.stdout.write(`ready on ${address}\n`);
}
