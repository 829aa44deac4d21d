import { EventEmitter } from "node:events";
import { create } from "@bufbuild/protobuf";
import { CreateKeyRequestSchema, KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { type Call, runUnlessAborted } from "../../../src/call/call.js";
import { ApiError, pathOf } from "../../../src/errors.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { createProcedures, type Procedure, type Service } from "../../../src/rpc/pipeline.js";
import type { Replica } from "./replica.js";

/** The environment of a call. Each step may take any time. */
export interface LateCallWorld {
  readonly replica: Replica;
  /** Resolves when the body has arrived, long after the headers. */
  body(): Promise<void>;
  /** Runs in the handler before its statement, if it has one. */
  handle(): Promise<void> | void;
  /** The statement of a change, which waits for a connection. Undefined for a call that only reads. */
  readonly change: (() => Promise<void>) | undefined;
}

/** The result of a call. */
export interface LateCallEnd {
  /** False if the call was refused by its headers. */
  readonly bodyArrived: boolean;
  /** `ok`, an error code such as `authorization/key_disabled`, or `unavailable`. */
  readonly code: string;
}

/** A call whose deadline can pass at any moment. */
export class LateCall implements Call {
  readonly requestId = "req";
  readonly client = new EventEmitter();
  readonly closeEvent = "gone";
  deadline = performance.now() + 1_000_000;
  abortReason?: ApiError | undefined;
  onAbort?: Set<() => void> | undefined;

  constructor(readonly world: LateCallWorld) {}

  letDeadlinePass(): void {
    this.deadline = 0;
  }

  get isOverdue(): boolean {
    return this.deadline === 0;
  }

  /** Runs the whole call, through the pipeline of the service. */
  async run(): Promise<LateCallEnd> {
    let bodyArrived = false;
    try {
      const caller = await procedure.admit(this, [`Bearer ${secret}`]);
      await this.world.body();
      bodyArrived = true;
      await procedure.perform(this, caller, () => request);
      return { bodyArrived, code: "ok" };
    } catch (error) {
      return { bodyArrived, code: error instanceof ApiError ? pathOf(error.code) : "unavailable" };
    }
  }

  /** Disconnects its client, so that the call leaves no timer behind. */
  disconnect(): void {
    this.client.emit(this.closeEvent);
  }
}

const secret = mintSecret().plaintext;
const request = create(CreateKeyRequestSchema);

const handlers = {
  async createKey(_request: unknown, { call }: { call: Call }) {
    const { handle, change } = (call as LateCall).world;
    await handle();
    if (change) await runUnlessAborted(call, () => ({ result: change(), cancel: () => {} }));
    return {};
  },
};

/**
 * One procedure for all replicas, because creating it takes longer than a schedule. Each call brings its own replica.
 */
const procedure = createProcedures(
  [{ descriptor: { ...KeysService, methods: [KeysService.method.createKey] }, handlers } as unknown as Service],
  {
    authenticate: (call, headers) => authenticationOf(call).authenticate(call, headers),
    recheck: (call, caller) => authenticationOf(call).recheck(call, caller),
    reread: (call, caller) => authenticationOf(call).reread(call, caller),
  },
  (_method, handle) => handle,
)[0] as Procedure;

function authenticationOf(call: Call) {
  return (call as LateCall).world.replica.authentication;
}
