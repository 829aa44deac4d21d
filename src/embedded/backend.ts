import { once } from "node:events";
import { createServer } from "node:net";

/** A server that this process can run, more than once, always at the same address. */
export interface Backend {
  /** What people call it. */
  readonly name: string;
  /** How to connect to it, password included. */
  readonly url: string;
  /**
   * Resolves when it answers; rejects with why it does not.
   *
   * @param unwanted aborts a start that takes long, as the recovery of a database may; then nothing runs any more
   */
  start(unwanted?: AbortSignal): Promise<Run>;
  /** Clears away what was needed to run it. */
  discard(): void;
}

/** A server that runs. */
export interface Run {
  /** Resolves when the server has ended, whoever ended it, to why that was, as far as it can be known. */
  readonly ended: Promise<string>;
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
