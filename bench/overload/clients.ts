import { callHeaders, type GrpcLoadOptions, type GrpcRequest, openCaller } from "../load/grpc.js";
import { type Asker, type HttpLoadOptions, openAsker } from "../load/http.js";
import type { Clients } from "./offer.js";

/** Calls over HTTP/1.1, each on a connection of its own; what finds none free waits, and its waiting counts. */
export async function openHttpClients({ port, connections, next }: HttpLoadOptions): Promise<Clients> {
  const ends = new Map<Asker, (served: boolean) => void>();
  const waiting: ((served: boolean) => void)[] = [];
  let failure: Error | undefined;

  function ended(asker: Asker, served: boolean): void {
    const end = ends.get(asker);
    ends.delete(asker);
    const nextEnd = waiting.shift();
    if (nextEnd) ask(asker, nextEnd);
    else idle.push(asker);
    end?.(served);
  }

  function ask(asker: Asker, end: (served: boolean) => void): void {
    ends.set(asker, end);
    asker.ask(next());
  }

  const askers = await Promise.all(
    Array.from({ length: connections }, () =>
      openAsker(port, {
        answered: (asker) => ended(asker, true),
        turnedAway: (asker) => ended(asker, false),
        failed(error) {
          failure ??= error;
        },
      }),
    ),
  );
  const idle = [...askers];
  return {
    get failure() {
      return failure;
    },
    call(end) {
      const asker = idle.shift();
      if (asker) ask(asker, end);
      else waiting.push(end);
    },
    close() {
      for (const asker of askers) asker.close();
    },
  };
}

/** Calls over gRPC, on connections in turn, each with as many calls under way as come. */
export async function openGrpcClients(options: Omit<GrpcLoadOptions, "streams">): Promise<Clients> {
  const { port, connections, next } = options;
  const ends = new Map<GrpcRequest, (served: boolean) => void>();
  let failure: Error | undefined;
  let made: GrpcRequest = next();
  let turn = 0;

  const ended = (request: GrpcRequest, served: boolean) => {
    ends.get(request)?.(served);
    ends.delete(request);
    return false;
  };
  const events = {
    next: () => made,
    answered: (request: GrpcRequest) => ended(request, true),
    turnedAway: (request: GrpcRequest) => ended(request, false),
    failed(error: Error) {
      failure ??= error;
    },
  };
  const callers = await Promise.all(
    Array.from({ length: connections }, () => openCaller(port, callHeaders(options), events)),
  );
  return {
    get failure() {
      return failure;
    },
    call(end) {
      made = { ...next() };
      ends.set(made, end);
      callers[turn++ % connections]?.start(1);
    },
    close() {
      for (const caller of callers) caller.close();
    },
  };
}
