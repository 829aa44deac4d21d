import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { addressOf, byPort } from "./backend-address.js";

/** A TCP proxy in front of a backend, for letting the network fail. */
export interface BackendProxy {
  /** The backend's URL, by way of the proxy. */
  readonly url: string;
  /** Ends every connection, and every new one at once. */
  cut(): void;
  /** Holds every byte back, in both directions, on new connections too. */
  stall(): void;
  /** Holds every byte back on the connections there are, for good; new ones work. */
  blackhole(): void;
  /** Lets every byte arrive this much later. */
  delay(ms: number): void;
  /** Lets every byte of the backend arrive this much later, and those to it at once. */
  delayAnswers(ms: number): void;
  /** All works again; bytes that were held back arrive now. */
  resume(): void;
  /** Ends every connection; new ones lead to the backend of this URL. */
  retarget(backendUrl: string): void;
  close(): Promise<void>;
}

/** Opens a proxy in front of the backend of this URL. */
export async function openProxy(backendUrl: string): Promise<BackendProxy> {
  let backend = addressOf(backendUrl);
  const links = new Set<Link>();
  let state: "open" | "cut" | "stalled" = "open";
  let delayMs = { there: 0, back: 0 };

  const server = createServer({ noDelay: true }, (near) => {
    near.on("error", () => {});
    if (state === "cut") {
      near.resetAndDestroy();
      return;
    }
    const link = join(near, connect({ ...backend, noDelay: true }));
    links.add(link);
    near.once("close", () => links.delete(link));
    link.delay(delayMs);
    if (state === "stalled") link.hold();
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
      for (const link of links) link.hold();
    },
    blackhole() {
      for (const link of links) link.abandon();
    },
    delay: (ms) => delayAll({ there: ms, back: ms }),
    delayAnswers: (ms) => delayAll({ there: 0, back: ms }),
    resume() {
      state = "open";
      delayAll({ there: 0, back: 0 });
      for (const link of links) link.release();
    },
    retarget(to) {
      backend = addressOf(to);
      breakAll();
    },
    async close() {
      state = "cut";
      breakAll();
      server.close();
      await once(server, "close");
    },
  };
}

/** A connection of a client, joined to one of the backend. */
interface Link {
  hold(): void;
  /** Holds for good. */
  abandon(): void;
  release(): void;
  delay(ms: { readonly there: number; readonly back: number }): void;
  break(): void;
}

function join(near: Socket, far: Socket): Link {
  far.on("error", () => {});
  near.once("close", () => far.destroy());
  far.once("close", () => near.destroy());
  const there = openFlow(near, far);
  const back = openFlow(far, near);
  const flows = [there, back];
  let abandoned = false;
  const link: Link = {
    hold() {
      for (const flow of flows) flow.hold();
    },
    abandon() {
      abandoned = true;
      link.hold();
    },
    release() {
      if (!abandoned) for (const flow of flows) flow.release();
    },
    delay(ms) {
      there.delay(ms.there);
      back.delay(ms.back);
    },
    break() {
      near.resetAndDestroy();
      far.destroy();
    },
  };
  return link;
}

/** One direction of a connection. Bytes that are under way when it is held arrive when it is released, in their order. */
function openFlow(from: Socket, to: Socket): Pick<Link, "hold" | "release"> & { delay(ms: number): void } {
  const late: { readonly bytes: Buffer; readonly due: number }[] = [];
  let held = false;
  let delayMs = 0;
  let timer: NodeJS.Timeout | undefined;

  const write = (bytes: Buffer) => {
    if (!to.destroyed && !to.write(bytes)) from.pause();
  };
  const deliver = () => {
    timer = undefined;
    while (!held && late[0] !== undefined && late[0].due <= performance.now()) write(late.shift()?.bytes as Buffer);
    const [next] = late;
    if (next !== undefined && !held) timer = setTimeout(deliver, next.due - performance.now());
  };
  from.on("data", (bytes) => {
    if (delayMs === 0 && late.length === 0) return write(bytes);
    late.push({ bytes, due: performance.now() + delayMs });
    if (timer === undefined && !held) timer = setTimeout(deliver, delayMs);
  });
  from.once("end", () => to.end());
  from.once("close", () => clearTimeout(timer));
  to.on("drain", () => {
    if (!held) from.resume();
  });

  return {
    hold() {
      held = true;
      clearTimeout(timer);
      from.pause();
    },
    release() {
      held = false;
      deliver();
      from.resume();
    },
    delay(ms) {
      delayMs = ms;
    },
  };
}
