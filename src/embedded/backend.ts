import { once } from "node:events";
import { createServer } from "node:net";

/** A server that was brought up for this process. */
export interface Backend {
  /** How to connect to it, password included. */
  readonly url: string;
  /** Resolves when the server has ended, whoever ended it. */
  readonly ended: Promise<unknown>;
  stop(): Promise<void>;
}

/** A port on the loopback that is free at this moment. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("the system names no free port");
  return address.port;
}
