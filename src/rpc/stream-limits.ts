import { constants, type Http2Session, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { type Limits, lookEveryMs } from "../overload/limits.js";

/** Keeps an eye on connections and streams, and ends those that do not keep within the limits. */
export interface StreamWatch {
  greet(session: ServerHttp2Session): void;
  /** A stream has begun. */
  watch(stream: ServerHttp2Stream, now: number): void;
  end(): void;
}

/** @param tooLate answers a request that was not complete in time */
export function watchStreams(limits: Limits, tooLate: (stream: ServerHttp2Stream) => void): StreamWatch {
  const open = new Map<ServerHttp2Stream, { readonly session: Http2Session | undefined; readonly beganAt: number }>();
  const resets = new WeakMap<object, { left: number; at: number }>();

  // One listener for all streams, and no timer for each: every call would pay.
  function closed(this: ServerHttp2Stream): void {
    const session = open.get(this)?.session; // a stream that is closed does not know it any more
    open.delete(this);
    if (this.rstCode !== constants.NGHTTP2_NO_ERROR && session) countReset(session);
  }

  function countReset(session: Http2Session): void {
    const now = performance.now();
    const { resetBurst, resetsPerSecond } = limits;
    const known = resets.get(session) ?? { left: resetBurst, at: now };
    const left = Math.min(resetBurst, known.left + ((now - known.at) / 1_000) * resetsPerSecond) - 1;
    resets.set(session, { left, at: now });
    if (left >= 0 || session.destroyed) return;
    session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    session.destroy();
  }

  const looking = setInterval(() => {
    const before = performance.now() - limits.requestMs;
    for (const [stream, { beganAt }] of open) {
      if (beganAt > before) break; // in the order in which they began
      if (stream.readableEnded || stream.closed) continue;
      tooLate(stream);
      stream.close(constants.NGHTTP2_NO_ERROR);
    }
  }, lookEveryMs).unref();

  return {
    greet(session) {
      const impatience = setTimeout(() => session.destroy(), limits.headMs).unref();
      session.once("remoteSettings", () => clearTimeout(impatience));
      session.once("close", () => clearTimeout(impatience));
    },
    watch(stream, now) {
      open.set(stream, { session: stream.session, beganAt: now });
      stream.once("close", closed);
    },
    end: () => clearInterval(looking),
  };
}
