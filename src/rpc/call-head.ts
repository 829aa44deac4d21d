import type { IncomingHttpHeaders } from "node:http2";
import type { Metadata } from "@grpc/grpc-js";

/**
 * Mends the head of a gRPC call where grpc-js would leave something of it out, and nobody would know:
 *
 * - It drops a header that is not of printable ASCII: a call with such an Idempotency-Key would run without one.
 * - Of several credentials, Node hands on the first.
 * - It takes a time-out of 25 days for one that is over, reads sense into some that have none, and answers by itself when
 *   one is over. So it is not told of them: the pipeline keeps the deadlines of calls.
 *
 * @param raw all names and values in turn, as they came
 */
export function mendHead(headers: IncomingHttpHeaders, raw: readonly string[]): void {
  const head: Record<string, string | string[] | undefined> = headers;
  if (head["grpc-timeout"] !== undefined) {
    head[timeoutHeader] = head["grpc-timeout"];
    head["grpc-timeout"] = undefined;
  }
  for (const name of readHere) {
    const value = head[name];
    if (typeof value === "string" && droppedCharacter.test(value))
      head[name] = value.replace(droppedCharacters, neverRight);
  }
  if (comesTwice("authorization", raw)) head["authorization"] = ["", ""]; // whichever they are
}

/** Where handlers find what the client sent as `grpc-timeout`. */
const timeoutHeader = "latchkey-grpc-timeout";

/** The headers that decide how a call is answered, and what is right in none of them: what is bad stays bad. */
const readHere = ["authorization", "idempotency-key", timeoutHeader];
const neverRight = ", ";

const droppedCharacter = /[^ -~]/;
const droppedCharacters = new RegExp(droppedCharacter, "g");

function comesTwice(wanted: string, raw: readonly string[]): boolean {
  let found = 0;
  for (let index = 0; index < raw.length; index += 2) if (raw[index] === wanted) found++;
  return found > 1;
}

/** What the client of a call sent as `grpc-timeout`, once its head is mended. */
export function timeoutOf(metadata: Metadata): string | undefined {
  return metadata.get(timeoutHeader)[0]?.toString();
}
