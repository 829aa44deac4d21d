import type { IncomingHttpHeaders } from "node:http2";

/** All names and values of the head of a call in turn, as they came. Over HTTP/2, names are in small letters. */
export type RawHeaders = readonly string[];

/** Every value of a header: of several credentials, Node hands on the first. */
export function valuesOf(raw: RawHeaders, wanted: string): string[] {
  const values: string[] = [];
  for (let index = 0; index < raw.length; index += 2) if (raw[index] === wanted) values.push(raw[index + 1] as string);
  return values;
}

/**
 * The head that grpc-js gets of a call. All that decides how the call is answered is read by ourselves, since grpc-js
 * leaves some of it out (what is not ASCII), takes a time-out of 25 days for one that is over, and answers by itself when
 * one is over. It is told of a compression that it does not know, whatever the client says: so it cannot begin to
 * decompress anything.
 */
export function headersForGrpcJs(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  return { ":path": headers[":path"], "content-type": headers["content-type"], "grpc-encoding": "refused" };
}

/** Whether the messages of a call may be compressed. */
export function isCompressed(headers: IncomingHttpHeaders): boolean {
  const encoding = headers["grpc-encoding"];
  return encoding !== undefined && encoding !== "identity";
}
