// Written by hand: other body readers keep the chunks as they arrive, and a chunk of one byte takes about 400 bytes.
import type { IncomingMessage, ServerResponse } from "node:http";
import { type ApiError, invalidInput, payloadTooLarge, serviceOverloaded } from "../errors.js";
import type { MemoryBudget, Reservation } from "../overload/memory-budget.js";
import { maxMessageBytes } from "../rpc/pipeline.js";

/** Bodies and responses up to this size count as part of the cost of a connection, and need no reservation. */
export const unreservedBytes = 4 * 1024;

/** Each chunk costs some microseconds, however small it is. The largest body may come in chunks of 64 bytes. */
const maxChunks = maxMessageBytes / 64;

/** Receives the body, or the error. */
type Done = (error: Error | null, body?: Buffer) => void;

const empty = Buffer.alloc(0);

/** The property of a request that stores its body. A map of all requests would add garbage collection cost to each. */
const bodySymbol = Symbol("body");

type RequestWithBody = IncomingMessage & { [bodySymbol]?: RequestBody };

/**
 * Collects the body of a request from its first byte, even before `readBody` is called. Node by itself would buffer it
 * in chunks until the caller is authenticated. Until then the body is not parsed.
 */
export function collectBody(request: IncomingMessage, response: ServerResponse, memory: MemoryBudget): void {
  const { "content-length": length, "transfer-encoding": encoding } = request.headers;
  if (encoding === undefined && (length === undefined || length === "0")) return;
  (request as RequestWithBody)[bodySymbol] = new RequestBody(response, memory, Number(length ?? maxMessageBytes));
  request.on("data", onData).on("end", onEnd).on("error", onEnd);
}

/**
 * Passes the body of a request to `done` once it is complete; an empty buffer if there is none.
 *
 * @param tenant the tenant whose memory budget the body uses
 */
export function readBody(request: IncomingMessage, tenant: string | undefined, done: Done): void {
  const body = (request as RequestWithBody)[bodySymbol];
  if (body === undefined) done(null, empty);
  else body.read(tenant, done);
}

// The listeners are shared by all requests: listeners of its own would make every call slower.
function onData(this: RequestWithBody, chunk: Buffer): void {
  this[bodySymbol]?.add(chunk);
}

function onEnd(this: RequestWithBody, error?: Error): void {
  this[bodySymbol]?.end(error);
}

class RequestBody {
  private bytes: Buffer = empty;
  private length = 0;
  private chunkCount = 0;
  private ended = false;
  private error: ApiError | Error | undefined;
  private reservation: Reservation | undefined;
  private tenant: string | undefined;
  private done: Done | undefined;

  /** @param maxLength the declared Content-Length; without one, the maximum size of a message */
  constructor(
    private readonly response: ServerResponse,
    private readonly memory: MemoryBudget,
    private readonly maxLength: number,
  ) {
    if (maxLength > maxMessageBytes) this.error = payloadTooLarge("body", maxMessageBytes);
  }

  read(tenant: string | undefined, done: Done): void {
    this.tenant = tenant;
    this.done = done;
    if (this.error !== undefined) this.complete();
    else if (tenant !== undefined && this.reservation?.assign(tenant) === false) this.fail(serviceOverloaded());
    else if (this.ended) this.complete();
  }

  add(chunk: Buffer): void {
    this.chunkCount += 1;
    const length = this.length + chunk.length;
    if (this.error !== undefined || this.response.writableEnded) {
      // The rest is read and discarded, so that the client receives the error; but only up to a limit.
      if (this.chunkCount > 2 * maxChunks) this.response.req.destroy();
    } else if (length > maxMessageBytes) {
      this.fail(payloadTooLarge("body", maxMessageBytes));
    } else if (this.chunkCount > maxChunks) {
      this.fail(invalidInput([{ location: "body", message: "arrives in too many chunks; send larger chunks" }]));
    } else if (!this.ensureCapacity(chunk, length)) {
      this.fail(serviceOverloaded());
    } else {
      if (chunk !== this.bytes) chunk.copy(this.bytes, this.length);
      this.length = length;
    }
  }

  private ensureCapacity(chunk: Buffer, length: number): boolean {
    if (length <= this.bytes.length) return true;
    if (chunk.length !== this.maxLength) return this.grow(length);
    this.bytes = chunk; // the whole body in one chunk, as for most requests
    return this.reserve(length);
  }

  /** Doubles the buffer each time, up to the maximum, so that there are few copies, however small the chunks are. */
  private grow(minSize: number): boolean {
    const size = Math.min(Math.max(minSize, 2 * this.bytes.length, 1024), this.maxLength);
    if (!this.reserve(size)) return false;
    const larger = Buffer.allocUnsafeSlow(size);
    this.bytes.copy(larger, 0, 0, this.length);
    this.bytes = larger;
    return true;
  }

  private reserve(size: number): boolean {
    if (size <= unreservedBytes) return true;
    if (this.reservation !== undefined) return this.reservation.grow(size - this.reservation.bytes);
    const { response, memory } = this;
    this.reservation = memory.accountOf(response.req.socket).reserve(size, this.tenant);
    response.once("close", () => this.release());
    return this.reservation !== undefined;
  }

  end(error?: Error): void {
    this.ended = true;
    this.error ??= error;
    this.complete();
  }

  private fail(error: ApiError): void {
    this.error = error;
    this.release();
    this.complete();
  }

  private release(): void {
    this.bytes = empty;
    this.length = 0;
    this.reservation?.release();
  }

  private complete(): void {
    const { done } = this;
    this.done = undefined;
    if (this.error !== undefined) done?.(this.error);
    else done?.(null, this.bytes.subarray(0, this.length));
  }
}
