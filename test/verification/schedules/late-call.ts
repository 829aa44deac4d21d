import { EventEmitter } from "node:events";
import { create } from "@bufbuild/protobuf";
import { CreateKeyRequestSchema, KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { type Call, runUnlessAborted } from "../../../src/call/call.js";
import { ApiError, pathOf } from "../../../src/errors.js";
import { mintSecret } from "../../../src/keys/secret.js";
import { createProcedures, type Procedure, type Service } from "../../../src/rpc/pipeline.js";
import type { Replica } from "./replica.js";

/** What a call meets on its way: all of it may take any time. */
export interface LateCallWorld {
  readonly replica: Replica;
  /** Resolves when the body has come, long after the headers. */
  body(): Promise<void>;
  /** What the handler does before its statement, if it has one. */
  handle(): Promise<void> | void;
  /** The statement of a change, which waits for a connection. Undefined for a call that changes nothing. */
  readonly change: (() => Promise<void>) | undefined;
}

/** How a call ended. Its headers were refused, or its whole request was. */
export interface LateCallEnd {
  readonly bodyCame: boolean;
  /** `ok`, a code of the catalogue such as `authorization/key_disabled`, or `unavailable`. */
  readonly code: string;
}

/** A call that can be overdue at any moment. */
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

  /** The whole way of a call, by the pipeline of the service. */
  async run(): Promise<LateCallEnd> {
    let bodyCame = false;
    try {
      const caller = await procedure.admit(this, [`Bearer ${secret}`]);
      await this.world.body();
      bodyCame = true;
      await procedure.perform(this, caller, () => request);
      return { bodyCame, code: "ok" };
    } catch (error) {
      return { bodyCame, code: error instanceof ApiError ? pathOf(error.code) : "unavailable" };
    }
  }

  /** Ends it without an answer, so that it leaves no timer behind. */
  abandon(): void {
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

/** One for all replicas, because it takes longer to make than a schedule to run; each call brings its own. */
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
