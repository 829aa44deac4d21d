// The part of Node 20 to 24 that it does not export. Listed in docs/architecture/library-internals.md.
import { Socket } from "node:net";

/** A write to a full pipe either fails with EAGAIN or blocks the process. */
export interface Pipe {
  setBlocking(blocking: boolean): void;
}

/**
 * The pipe or socket that a stream writes to. Undefined for a terminal and for a file, which do not stay full. Node has
 * no public way to set the mode, so this uses `_handle`. Throws if a new version of Node has changed it: otherwise the
 * first reader that stops reading the log would stop the service.
 */
export function pipeOf(stream: NodeJS.WriteStream): Pipe | undefined {
  if (stream.isTTY || !(stream instanceof Socket)) return undefined;
  const { _handle: handle } = stream as { readonly _handle?: Partial<Pipe> };
  if (typeof handle?.setBlocking !== "function") {
    throw new Error("this version of Node has changed stderr: src/observe/internals.ts needs to be checked");
  }
  return handle as Pipe;
}
