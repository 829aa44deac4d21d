import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A TCP proxy in front of a backend, for letting the network fail. */
export interface BackendProxy {
  /** The backend's URL, by way of the proxy. */
  readonly url: string;
  /** Ends every connection, and every new one at once. */
  cut(): void;
  /** Holds every byte back, in both directions, on new connections too. */
  stall(): void;
  /** All works again; bytes that were held back arrive now. */
  resume(): void;
  close(): Promise<void>;
}

/** Opens a proxy in front of the backend of this URL. */
export async function openProxy(backendUrl: string): Promise<BackendProxy> {
  const backend = new URL(backendUrl);
  const pairs = new Set<readonly [Socket, Socket]>();
  let state: "open" | "cut" | "stalled" = "open";

  const server = createServer((near) => {
    near.on("error", () => {});
    if (state === "cut") {
      near.resetAndDestroy();
      return;
    }
    const far = connect(Number(backend.port), backend.hostname);
    far.on("error", () => {});
    const pair = [near, far] as const;
    pairs.add(pair);
    for (const socket of pair) {
      socket.setNoDelay(true);
      socket.once("close", () => {
        pairs.delete(pair);
        for (const each of pair) each.destroy();
      });
    }
    if (state === "open") flow(pair);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = new URL(backendUrl);
  url.hostname = "127.0.0.1";
  url.port = `${(server.address() as AddressInfo).port}`;

  const cut = () => {
    state = "cut";
    for (const [near, far] of pairs) {
      near.resetAndDestroy();
      far.destroy();
    }
  };

  return {
    url: url.href,
    cut,
    stall() {
      state = "stalled";
      for (const [near, far] of pairs) {
        near.unpipe(far).pause();
        far.unpipe(near).pause();
      }
    },
    resume() {
      state = "open";
      for (const pair of pairs) flow(pair);
    },
    async close() {
      cut();
      server.close();
      await once(server, "close");
    },
  };
}

function flow([near, far]: readonly [Socket, Socket]): void {
  near.unpipe(far).pipe(far);
  far.unpipe(near).pipe(near);
}
