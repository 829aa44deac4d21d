import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { DelegateRequestSchema, DelegateResponseSchema } from "../../../gen/latchkey/v1/verifier_service_pb.js";
import type { Call } from "../../../src/call/call.js";
import type { KeyCaller } from "../../../src/call/context.js";
import type { ServerStream } from "../../../src/call/stream.js";
import { toApiError } from "../../../src/rpc/pipeline.js";
import { createSession, type Session } from "../../../src/verifier/session.js";
import { verifierHash, verifierKeyId, workspaceId } from "./postgres.js";
import type { Replica } from "./replica.js";
import type { MachineClock, Step } from "./time.js";

/** A client that verifies keys itself: the session of the library, on a simulated machine and network. */
export interface Verifier {
  /** Undefined while it has no stream. */
  readonly session: Session | undefined;
  /** Opens a stream to a replica, unless there is one. */
  connect(replica: Replica): Promise<void>;
  /** Breaks the stream: its messages in flight are lost. */
  disconnect(): void;
  /** Whether the stream is one to this replica. */
  isConnectedTo(replica: Replica): boolean;
  readonly received: number;
  readonly dropped: number;
}

const caller: KeyCaller = {
  kind: "key",
  keyId: verifierKeyId,
  workspaceId,
  scopes: ["keys.verify"],
  expiresAt: null,
  hash: verifierHash,
};

const maxBytes = 1_000_000;

/** @param maxUnread how many messages of the service may wait. Then the stream is congested */
export function createVerifier(name: string, clock: MachineClock, step: Step, maxUnread: number): Verifier {
  let session: Session | undefined;
  let server: ServerStream<unknown> | undefined;
  let connectedTo: Replica | undefined;
  let received = 0;
  let dropped = 0;

  const newCall = (): Call => ({ requestId: "req", deadline: Number.POSITIVE_INFINITY });

  function disconnect(): void {
    const [stream, served] = [session, server];
    session = undefined;
    server = undefined;
    connectedTo = undefined;
    stream?.close();
    served?.closed();
  }

  /** Delivers messages in the order in which they were sent, each in a step of its own. */
  function createLink<T>(what: string, receive: (message: T) => void) {
    const inFlight: T[] = [];
    return {
      inFlight,
      send(message: T): void {
        inFlight.push(message);
        void step(what).then(() => receive(inFlight.shift() as T));
      },
    };
  }

  return {
    get session() {
      return session;
    },
    get received() {
      return received;
    },
    get dropped() {
      return dropped;
    },
    disconnect,
    isConnectedTo: (replica) => connectedTo === replica,
    async connect(replica) {
      if (session !== undefined) return;
      const recheck = () => replica.authentication.recheck(newCall(), caller);
      await recheck();
      if (session !== undefined) return;

      let served: ServerStream<unknown> | undefined;
      const toServer = createLink<Uint8Array>(`${replica.name} gets a message of ${name}`, (bytes) => {
        if (server === served) served?.receive(fromBinary(DelegateRequestSchema, bytes));
      });
      const toClient = createLink<Uint8Array | "end">(`${name} gets a message of ${replica.name}`, (message) => {
        if (session !== stream) return;
        if (message === "end") return disconnect();
        received += 1;
        stream.receive(fromBinary(DelegateResponseSchema, message));
      });
      const stream = createSession({
        clock,
        maxBytes,
        send: (message) => toServer.send(toBinary(DelegateRequestSchema, create(DelegateRequestSchema, { message }))),
        onGrant() {},
        onClockJump: disconnect,
      });
      session = stream;
      connectedTo = replica;
      served = replica.delegation.serve(
        {
          send: (message) => toClient.send(toBinary(DelegateResponseSchema, create(DelegateResponseSchema, message))),
          isCongested() {
            const isCongested = toClient.inFlight.length >= maxUnread;
            if (isCongested) dropped += 1;
            return isCongested;
          },
          end: () => toClient.send("end"),
        },
        {
          workspaceId,
          recheck: recheck as () => KeyCaller,
          admit: recheck,
          newCall,
          toApiError,
        },
      ) as ServerStream<unknown>;
      server = served;
    },
  };
}
