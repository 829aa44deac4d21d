import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { addressOf, byPort } from "./backend-address.js";

/** A TCP proxy in front of a backend, to simulate network faults. */
export interface BackendProxy {
  /** The backend's URL through the proxy. */
  readonly url: string;
  /** Resets every connection, and every new one at once. */
  cut(): void;
  /** Buffers all bytes in both directions, on new connections too. */
  stall(): void;
  /** Delivers no further bytes on the existing connections. New connections work. */
  blackhole(): void;
  /** Delays all bytes by this time. */
  delay(ms: number): void;
  /** Delays the bytes from the backend by this time, and not those to it. */
  delayResponses(ms: number): void;
  /** Ends every fault. Buffered bytes arrive now. */
  resume(): void;
  /** Resets every connection. New ones lead to the backend of this URL. */
  retarget(backendUrl: string): void;
  /** New connections lead to the backend of this URL. The others stay as they are. */
  connectNewTo(backendUrl: string): void;
  /** How many bytes the backend has sent so far. */
  bytesFromBackend(): number;
  close(): Promise<void>;
}

/** Opens a proxy in front of the backend of this URL. */
export async function openProxy(backendUrl: string): Promise<BackendProxy> {
  let backend = addressOf(backendUrl);
  const links = new Set<Link>();
  let state: "open" | "cut" | "stalled" = "open";
  let delayMs = { toBackend: 0, fromBackend: 0 };
  let bytesFromBackend = 0;

  const server = createServer({ noDelay: true }, (near) => {
    near.on("error", () => {});
    if (state === "cut") {
      near.resetAndDestroy();
      return;
    }
    const far = connect({ ...backend, noDelay: true });
    far.on("data", ({ length }) => {
      bytesFromBackend += length;
    });
    const link = join(near, far);
    links.add(link);
    near.once("close", () => links.delete(link));
    link.delay(delayMs);
    if (state === "stalled") link.pause();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  const breakAll = () => {
    for (const link of links) link.break();
  };

  const delayAll = (delay: typeof delayMs) => {
    delayMs = delay;
    for (const link of links) link.delay(delay);
  };

  return {
    url: byPort(backendUrl, (server.address() as AddressInfo).port),
    cut() {
      state = "cut";
      breakAll();
    },
    stall() {
      state = "stalled";
      for (const link of links) link.pause();
    },
    blackhole() {
      for (const link of links) link.abandon();
    },
    delay: (ms) => delayAll({ toBackend: ms, fromBackend: ms }),
    delayResponses: (ms) => delayAll({ toBackend: 0, fromBackend: ms }),
    resume() {
      state = "open";
      delayAll({ toBackend: 0, fromBackend: 0 });
      for (const link of links) link.resume();
    },
    retarget(to) {
      backend = addressOf(to);
      breakAll();
    },
    connectNewTo(to) {
      backend = addressOf(to);
    },
    bytesFromBackend: () => bytesFromBackend,
    async close() {
      state = "cut";
      breakAll();
      server.close();
      await once(server, "close");
    },
  };
}

/** A connection of a client, joined to one to the backend. */
interface Link {
  pause(): void;
  /** Pauses permanently. */
  abandon(): void;
  resume(): void;
  delay(ms: { readonly toBackend: number; readonly fromBackend: number }): void;
  break(): void;
}

function join(near: Socket, far: Socket): Link {
  far.on("error", () => {});
  near.once("close", () => far.destroy());
  far.once("close", () => near.destroy());
  const toBackend = openFlow(near, far);
  const fromBackend = openFlow(far, near);
  const flows = [toBackend, fromBackend];
  let abandoned = false;
  const link: Link = {
    pause() {
      for (const flow of flows) flow.pause();
    },
    abandon() {
      abandoned = true;
      link.pause();
    },
    resume() {
      if (!abandoned) for (const flow of flows) flow.resume();
    },
    delay(ms) {
      toBackend.delay(ms.toBackend);
      fromBackend.delay(ms.fromBackend);
    },
    break() {
      near.resetAndDestroy();
      far.destroy();
    },
  };
  return link;
}

/** One direction of a connection. Bytes that arrive while it is paused are delivered in order when it resumes. */
function openFlow(from: Socket, to: Socket): Pick<Link, "pause" | "resume"> & { delay(ms: number): void } {
  const late: { readonly bytes: Buffer; readonly due: number }[] = [];
  let paused = false;
  let delayMs = 0;
  let timer: NodeJS.Timeout | undefined;

  const write = (bytes: Buffer) => {
    if (!to.destroyed && !to.write(bytes)) from.pause();
  };
  const deliver = () => {
    timer = undefined;
    while (!paused && late[0] !== undefined && late[0].due <= performance.now()) write(late.shift()?.bytes as Buffer);
    const [next] = late;
    if (next !== undefined && !paused) timer = setTimeout(deliver, next.due - performance.now());
  };
  from.on("data", (bytes) => {
    if (delayMs === 0 && late.length === 0) return write(bytes);
    late.push({ bytes, due: performance.now() + delayMs });
    if (timer === undefined && !paused) timer = setTimeout(deliver, delayMs);
  });
  from.once("end", () => to.end());
  from.once("close", () => clearTimeout(timer));
  to.on("drain", () => {
    if (!paused) from.resume();
  });

  return {
    pause() {
      paused = true;
      clearTimeout(timer);
      from.pause();
    },
    resume() {
      paused = false;
      deliver();
      from.resume();
    },
    delay(ms) {
      delayMs = ms;
    },
  };
}
