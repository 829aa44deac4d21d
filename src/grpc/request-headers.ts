import type { IncomingHttpHeaders } from "node:http2";

/** All header names and values of a call, alternating, as received. HTTP/2 header names are lower-case. */
export type RawHeaders = readonly string[];

/** Every value of a header. Node's parsed headers contain only the first of several credentials. */
export function valuesOf(rawHeaders: RawHeaders, name: string): string[] {
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    if (rawHeaders[index] === name) values.push(rawHeaders[index + 1] as string);
  }
  return values;
}

/**
 * The headers of a call that grpc-js sees. This process reads all headers that decide the response itself, because
 * grpc-js drops values that are not ASCII, treats a timeout of 25 days as expired, and responds by itself when a
 * timeout expires. `grpc-encoding` is always an encoding that grpc-js does not know, so that it never decompresses.
 */
export function headersForGrpcJs(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  return { ":path": headers[":path"], "content-type": headers["content-type"], "grpc-encoding": "refused" };
}

/** Whether the messages of a call may be compressed. */
export function isCompressed(headers: IncomingHttpHeaders): boolean {
  const encoding = headers["grpc-encoding"];
  return encoding !== undefined && encoding !== "identity";
}
