import { constants, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { type Limits, lookEveryMs } from "../overload/limits.js";
import type { Room } from "../overload/room.js";

/** Keeps an eye on connections and streams, and ends those that do not keep within the limits. */
export interface StreamWatch {
  /** A connection has begun; so will its streams, before the server hears of them. */
  greet(session: ServerHttp2Session): void;
  /** What comes on a stream is weighed from now on. After its reader has begun: a listener would begin to read. */
  weigh(stream: ServerHttp2Stream): void;
  end(): void;
}

/** Answers a call on its bare stream. */
export type AnswerStream = (stream: ServerHttp2Stream) => void;

interface Connection {
  readonly session: ServerHttp2Session;
  /** What its streams have us hold. */
  weight: number;
  /** How many calls it could take back at once when it last took back one, and when that was. */
  resetsLeft: number;
  resetAt: number;
}

interface OpenStream {
  readonly connection: Connection;
  readonly beganAt: number;
  /** Whether it is kept for as long as its client likes. */
  readonly lasting: boolean;
  /** What a byte that comes may take of memory. */
  readonly byteWeight: number;
  weight: number;
  endedByUs: boolean;
}

/** Who waits for news of our health may wait for ever. */
const lastingPath = `/${Health.typeName}/${Health.method.watch.name}`;

/**
 * What is packed may become a thousand times as large. To count on that would refuse those who mean well; with this,
 * they have some two hundred small calls under way, and who means harm gets us to hold eight times the limit.
 */
const packedWeight = 128;

/**
 * @param tooLate answers a request that was not complete in time
 * @param tooMuch answers a request for which there is no room left, on its connection or at all
 */
export function watchStreams(limits: Limits, room: Room, tooLate: AnswerStream, tooMuch: AnswerStream): StreamWatch {
  const open = new Map<ServerHttp2Stream, OpenStream>();

  function begin(connection: Connection, stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    if (stream.destroyed) {
      countReset(connection); // taken back in the same breath
      return;
    }
    const encoding = headers["grpc-encoding"];
    open.set(stream, {
      connection,
      beganAt: performance.now(),
      lasting: headers[":path"] === lastingPath,
      byteWeight: encoding === undefined || encoding === "identity" ? 1 : packedWeight,
      weight: 0,
      endedByUs: false,
    });
    stream.on("close", closed); // it closes once by itself
  }

  // One listener for all streams, and no timer for each: every call would pay.
  function closed(this: ServerHttp2Stream): void {
    const known = open.get(this);
    if (known === undefined) return;
    open.delete(this);
    letGo(known);
    if (known.endedByUs) return;
    // Whoever waits first has no more under way than the limit of streams allows: those are deadlines that have passed.
    if (performance.now() - known.beganAt >= limits.resetWithinMs) return;
    // A client can take a call back without calling it an error: then it ends before its answer does.
    if (this.rstCode !== constants.NGHTTP2_NO_ERROR || this.aborted) countReset(known.connection);
  }

  function countReset(connection: Connection): void {
    const now = performance.now();
    const allowedAnew = ((now - connection.resetAt) / 1_000) * limits.resetsPerSecond;
    connection.resetsLeft = Math.min(limits.resetBurst, connection.resetsLeft + allowedAnew) - 1;
    connection.resetAt = now;
    // Not before what has arrived is read: Node would end the process over a session that is destroyed meanwhile.
    if (connection.resetsLeft < 0) setImmediate(sendAway, connection.session);
  }

  /** grpc-js collects a message before anybody has looked who sends it. So what is collected is limited. */
  function came(this: ServerHttp2Stream, { length }: Buffer): void {
    const known = open.get(this);
    if (known === undefined) return;
    const { connection } = known;
    const weight = Math.min(known.weight + length * known.byteWeight, limits.unpackedBytes);
    const more = weight - known.weight;
    known.weight = weight;
    connection.weight += more;
    if (room.take(more, connection.weight) && connection.weight <= limits.bytesUnderWay) return;
    letGo(known); // at once: others that bring something in this turn need not go, too
    this.off("data", came);
    setImmediate(endStream, this, known, tooMuch); // while data is being read, the end would overtake the answer
  }

  function letGo(known: OpenStream): void {
    known.connection.weight -= known.weight;
    room.giveBack(known.weight);
    known.weight = 0;
  }

  // A client that does not read its answer is too late as well.
  const looking = setInterval(() => {
    const before = performance.now() - limits.requestMs;
    for (const [stream, known] of open) {
      if (known.beganAt > before) break; // in the order in which they began
      if (!known.lasting || !stream.readableEnded) endStream(stream, known, tooLate);
    }
  }, lookEveryMs).unref();

  return {
    greet(session) {
      const impatience = setTimeout(() => session.destroy(), limits.headMs).unref();
      session.once("remoteSettings", () => clearTimeout(impatience));
      session.once("close", () => clearTimeout(impatience));
      const connection = { session, weight: 0, resetsLeft: limits.resetBurst, resetAt: performance.now() };
      session.prependListener("stream", (stream, headers) => begin(connection, stream as ServerHttp2Stream, headers));
    },
    weigh(stream) {
      stream.on("data", came);
    },
    end: () => clearInterval(looking),
  };
}

function sendAway(session: ServerHttp2Session): void {
  if (session.destroyed) return;
  session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  session.destroy();
}

/** Ends a stream, with an answer where it is not too late for one. */
function endStream(stream: ServerHttp2Stream, known: OpenStream, answer: AnswerStream): void {
  if (stream.closed) return;
  known.endedByUs = true;
  const answered = stream.headersSent;
  if (!answered) answer(stream);
  // Without an error, it would first wait until all that was written is read.
  stream.close(answered ? constants.NGHTTP2_CANCEL : constants.NGHTTP2_NO_ERROR);
}
