// By hand: what collects bodies elsewhere keeps the pieces that they came in, and a piece of one byte takes some 400.
import type { IncomingMessage, ServerResponse } from "node:http";
import { type ApiError, invalidInput, payloadTooLarge, serviceOverloaded } from "../errors.js";
import type { MemoryBudget, Reservation } from "../overload/memory-budget.js";
import { maxMessageBytes } from "../rpc/pipeline.js";

/** A body or a response of no more than this is part of what a connection costs anyway, and is not reserved. */
export const unreservedBytes = 4 * 1024;

/** Each piece takes some microseconds, however small it is: the largest body may come in pieces of 64 bytes. */
const mostPieces = maxMessageBytes / 64;

/** Gets the body, or why it could not be had. */
type Done = (error: Error | null, body?: Buffer) => void;

const empty = Buffer.alloc(0);

/** Where a request keeps its body: on itself, since a map of all requests would cost each a part of its collection. */
const bodyOf = Symbol("body");

type Collected = IncomingMessage & { [bodyOf]?: RequestBody };

/**
 * Collects the body of a request from its first byte on, whether anybody has asked for it yet or not: left to Node, it
 * would wait in pieces until the caller is known. It is bytes until then; nobody looks at them.
 */
export function collectBody(request: IncomingMessage, response: ServerResponse, memory: MemoryBudget): void {
  const { "content-length": length, "transfer-encoding": encoding } = request.headers;
  if (encoding === undefined && (length === undefined || length === "0")) return;
  (request as Collected)[bodyOf] = new RequestBody(response, memory, Number(length ?? maxMessageBytes));
  request.on("data", came).on("end", ended).on("error", ended);
}

/**
 * Hands over the body of a request once it is complete; an empty one if there is none.
 *
 * @param tenant who sends it
 */
export function readBody(request: IncomingMessage, tenant: string | undefined, done: Done): void {
  const body = (request as Collected)[bodyOf];
  if (body === undefined) done(null, empty);
  else body.read(tenant, done);
}

// One listener for all requests: every call would pay for its own.
function came(this: Collected, chunk: Buffer): void {
  this[bodyOf]?.add(chunk);
}

function ended(this: Collected, error?: Error): void {
  this[bodyOf]?.end(error);
}

class RequestBody {
  private bytes: Buffer = empty;
  private length = 0;
  private pieces = 0;
  private ended = false;
  private failure: ApiError | Error | undefined;
  private reservation: Reservation | undefined;
  private tenant: string | undefined;
  private done: Done | undefined;

  /** @param longest how long it says that it is; if it does not, how long it may be */
  constructor(
    private readonly response: ServerResponse,
    private readonly memory: MemoryBudget,
    private readonly longest: number,
  ) {
    if (longest > maxMessageBytes) this.failure = payloadTooLarge("body", maxMessageBytes);
  }

  read(tenant: string | undefined, done: Done): void {
    this.tenant = tenant;
    this.done = done;
    if (this.failure !== undefined) this.handOver();
    else if (tenant !== undefined && this.reservation?.assign(tenant) === false) this.fail(serviceOverloaded());
    else if (this.ended) this.handOver();
  }

  add(chunk: Buffer): void {
    this.pieces += 1;
    const length = this.length + chunk.length;
    if (this.failure !== undefined || this.response.writableEnded) {
      // Read to its end and kept by nobody, so that the refusal arrives; but not at any cost.
      if (this.pieces > 2 * mostPieces) this.response.req.destroy();
    } else if (length > maxMessageBytes) {
      this.fail(payloadTooLarge("body", maxMessageBytes));
    } else if (this.pieces > mostPieces) {
      this.fail(invalidInput([{ location: "body", message: "comes in too many pieces; send larger chunks" }]));
    } else if (!this.prepareFor(chunk, length)) {
      this.fail(serviceOverloaded());
    } else {
      if (chunk !== this.bytes) chunk.copy(this.bytes, this.length);
      this.length = length;
    }
  }

  private prepareFor(chunk: Buffer, length: number): boolean {
    if (length <= this.bytes.length) return true;
    if (chunk.length !== this.longest) return this.grow(length);
    this.bytes = chunk; // all of it at once, as most come
    return this.reserve(length);
  }

  /** Twice as large each time, as long as it may be: so it is copied a few times, however small the pieces are. */
  private grow(least: number): boolean {
    const size = Math.min(Math.max(least, 2 * this.bytes.length, 1024), this.longest);
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
    response.once("close", () => this.drop());
    return this.reservation !== undefined;
  }

  end(error?: Error): void {
    this.ended = true;
    this.failure ??= error;
    this.handOver();
  }

  private fail(failure: ApiError): void {
    this.failure = failure;
    this.drop();
    this.handOver();
  }

  private drop(): void {
    this.bytes = empty;
    this.length = 0;
    this.reservation?.release();
  }

  private handOver(): void {
    const { done } = this;
    this.done = undefined;
    if (this.failure !== undefined) done?.(this.failure);
    else done?.(null, this.bytes.subarray(0, this.length));
  }
}
