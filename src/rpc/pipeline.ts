import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodUnary,
  type DescService,
  getOption,
  hasOption,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import type { Span } from "@opentelemetry/api";
import { type Access, access } from "../../gen/latchkey/v1/access_pb.js";
import { accepts_idempotency_key } from "../../gen/latchkey/v1/idempotency_pb.js";
import type { Authentication } from "../auth/authenticate.js";
import { abortCall, type Call, throwIfAborted } from "../call/call.js";
import type { CallContext, Handlers, Principal } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import { covers } from "../call/permissions.js";
import {
  ApiError,
  cancelled,
  deadlineExceeded,
  keyRequired,
  missingScope,
  operatorOnly,
  serviceUnavailable,
  unexpectedError,
} from "../errors.js";
import type { Handle, Idempotency } from "../idempotency/middleware.js";
import type { Protocol } from "../observe/access-log.js";
import type { ReadHeader, Tracing } from "../observe/tracing.js";
import { isCallerChanged } from "../revocation/authorized-key.js";
import { classifyError } from "../storage/postgres/errors.js";
import { createValidate } from "./validate.js";

/** A service's descriptor together with its handlers. */
export interface Service {
  readonly descriptor: DescService;
  readonly handlers: Record<string, Handler>;
}

type Handler = (request: never, context: CallContext) => MaybePromise<MessageInitShape<DescMessage>>;

/** Ties handlers to their descriptor; the compiler sees to it that they belong together. */
export function service<Descriptor extends DescService>(
  descriptor: Descriptor,
  handlers: Handlers<Descriptor>,
): Service {
  return { descriptor, handlers };
}

/** One RPC as every protocol calls it: first admit, then perform. */
export interface Procedure {
  readonly method: DescMethodUnary;
  /** The path that every RPC protocol calls it by: `/latchkey.v1.KeysService/ListKeys`. */
  readonly path: string;
  /** Begins the span of a call, which ends when the call is logged. Undefined: nobody listens. */
  readonly beginSpan: ((protocol: Protocol, header: ReadHeader) => Span) | undefined;
  /** authenticate -> authorise. Comes before the body is looked at: who may not call learns nothing about it. */
  admit(call: Call, authorization: readonly string[]): MaybePromise<Principal>;
  /**
   * authenticate and authorise again -> decode -> validate -> handle; what was answered before, and is asked for again,
   * is answered before its rules count. To be called when the whole request is there: however late that is, it is not
   * performed for a caller that was revoked meanwhile, nor when its deadline has passed.
   */
  perform(call: Call, caller: Principal, decode: () => Message): MaybePromise<Message>;
}

/**
 * The largest request that is read over any protocol, in bytes. The largest valid one has 16 KiB of meta, each character
 * of which JSON may write as six, and of which protobuf makes up to five and a half times as much, beside 100 permissions of
 * 100 characters.
 */
export const maxMessageBytes = 128 * 1024;

/** How long a call may take that brings no deadline of its own. */
export const maxCallMs = 10_000;

/** Makes the procedures of all services. Refuses an RPC that declares nobody who may call it. */
export function createProcedures(
  services: readonly Service[],
  { authenticate, recheck, reread }: Authentication,
  once: Idempotency,
  tracing?: Tracing,
): Procedure[] {
  const validate = createValidate(services.flatMap(({ descriptor }) => descriptor.methods.map(({ input }) => input)));

  return services.flatMap(({ descriptor, handlers }) =>
    descriptor.methods.map((method): Procedure => {
      if (!isUnary(method)) throw new Error(`${method}: only unary RPCs are served`);
      const handler = handlers[method.localName] as Handle;
      const validateAndHandle: Handle = (request, context) => {
        validate.rules(method.input, request);
        return handler(request, context);
      };
      const answerOnce = getOption(method, accepts_idempotency_key)
        ? once(method, validateAndHandle)
        : validateAndHandle;
      // What is compared with a request before is bounded first; its rules may have come to refuse it meanwhile.
      const answer: Handle = (request, context) => {
        validate.form(method.input, request);
        return answerOnce(request, context);
      };
      const accessOption = declaredAccess(method);
      const path = `/${descriptor.typeName}/${method.name}`;

      return {
        method,
        path,
        beginSpan: tracing && ((protocol, header) => tracing.beginSpan(path, protocol, header)),
        admit: (call, authorization) =>
          whileAwaited(
            call,
            chain(authenticate(call, authorization), (caller) => {
              if (caller.kind === "key") {
                call.workspaceId = caller.workspaceId;
                call.callerId = caller.keyId;
              }
              authorise(caller, accessOption);
              return caller;
            }),
          ),
        perform(call, caller, decode) {
          throwIfAborted(call);
          return whileAwaited(
            call,
            chain(recheck(call, caller), (present) => {
              authorise(present, accessOption);
              const request = decode();
              return chain(answerFor(request, present, call), (response) => create(method.output, response));
            }),
          );
        },
      };

      function answerFor(request: Message, caller: Principal, call: Call): ReturnType<Handle> {
        const response = answer(request, { caller, call });
        if (!(response instanceof Promise)) return response;
        return response.catch(async (error) => {
          // A statement found the caller changed, and has done nothing. What it may do now is decided anew.
          if (!isCallerChanged(error)) throw error;
          const present = await reread(call, caller);
          authorise(present, accessOption);
          return answerFor(request, present, call);
        });
      }
    }),
  );
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function declaredAccess(method: DescMethodUnary): Access {
  const declared = hasOption(method, access) ? getOption(method, access) : undefined;
  if (declared === undefined || (declared.scope === "" && !declared.operator)) {
    throw new Error(`${method} declares nobody who may call it: give it the option (latchkey.v1.access)`);
  }
  return declared;
}

/** By the key's scopes alone: its permissions are the words of the user's application, whatever they are called. */
function authorise(caller: Principal, { scope, operator }: Access): void {
  if (caller.kind === "operator") {
    if (!operator) throw keyRequired(scope);
  } else if (scope === "") {
    throw operatorOnly();
  } else if (!covers(caller.scopes, scope)) {
    throw missingScope(scope);
  }
}

/** Waits for a step of a call, but no longer than its client does: until the deadline, unless it goes away before. */
function whileAwaited<T>(call: Call, step: MaybePromise<T>): MaybePromise<T> {
  if (!(step instanceof Promise)) return step;
  const { client, closeEvent: leaving = "" } = call;
  return new Promise((resolve, reject) => {
    const late = () => end(deadlineExceeded());
    const gone = () => end(performance.now() < call.deadline ? cancelled() : deadlineExceeded());
    const timer = setTimeout(late, Math.max(0, call.deadline - performance.now()));
    client?.once(leaving, gone);

    function end(why: ApiError): void {
      stopWaiting();
      abortCall(call, why);
      reject(why);
    }

    function stopWaiting(): void {
      clearTimeout(timer);
      client?.off(leaving, gone);
    }

    step.then(
      (value) => {
        stopWaiting();
        resolve(value);
      },
      (error) => {
        stopWaiting();
        reject(error);
      },
    );
  });
}

/** What the caller is told about anything that was thrown. What is not in the catalogue stays in the log. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const trouble = classifyError(error);
  return trouble ? serviceUnavailable(error, trouble.sentence) : unexpectedError(error);
}
