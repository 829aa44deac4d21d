import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodUnary,
  type DescService,
  getOption,
  hasOption,
  type Message,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import type { Span } from "@opentelemetry/api";
import { type Access, access } from "../../gen/latchkey/v1/access_pb.js";
import { accepts_idempotency_key } from "../../gen/latchkey/v1/idempotency_pb.js";
import type { Authentication } from "../auth/authenticate.js";
import { abortCall, type Call, throwIfAborted } from "../call/call.js";
import type { CallContext, Handlers, Principal } from "../call/context.js";
import { chain, type MaybePromise } from "../call/maybe-promise.js";
import { covers } from "../call/permissions.js";
import type { ServeStream } from "../call/stream.js";
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

/** Combines handlers with their descriptor. The compiler checks that they match. */
export function service<Descriptor extends DescService>(
  descriptor: Descriptor,
  handlers: Handlers<Descriptor>,
): Service {
  return { descriptor, handlers };
}

/** One RPC, as every protocol runs it: first admit, then perform. */
export interface Procedure {
  readonly method: DescMethodUnary;
  /** Its path in every RPC protocol: `/latchkey.v1.KeysService/ListKeys`. */
  readonly path: string;
  /** Starts the span of a call, which ends when the call is logged. Undefined: tracing is off. */
  readonly beginSpan: ((protocol: Protocol, header: ReadHeader) => Span) | undefined;
  /** authenticate -> authorize. Runs before the body is decoded: a refused caller gets no errors about its body. */
  admit(call: Call, authorization: readonly string[]): MaybePromise<Principal>;
  /**
   * authenticate and authorize again -> decode -> validate -> handle. A retry with a known idempotency key gets the
   * first response, before the rules are checked. Must be called when the whole request has arrived. However late that
   * is, a request is not performed if its caller was revoked meanwhile or its deadline has passed.
   */
  perform(call: Call, caller: Principal, decode: () => Message): MaybePromise<Message>;
}

/** An RPC with a bidirectional stream, as the gRPC port runs it. */
export interface StreamProcedure extends Pick<Procedure, "path" | "beginSpan" | "admit"> {
  readonly method: DescMethodBiDiStreaming;
  /** authenticate -> authorize again. Throws once the caller was revoked. */
  recheck(call: Call, caller: Principal): MaybePromise<Principal>;
  /** Validates a message of the client. */
  validate(message: Message): void;
  /** Serves the stream of an admitted caller. */
  readonly serve: ServeStream<Message, unknown>;
}

/**
 * The maximum size of a request on any protocol, in bytes. The largest valid request has 16 KiB of meta, besides 100
 * permissions of 100 characters. JSON may escape each character of meta as six, and protobuf may encode meta in up to
 * five and a half times as many bytes.
 */
export const maxMessageBytes = 128 * 1024;

/** The maximum duration of a call. A client's own timeout can only shorten it. */
export const maxCallMs = 10_000;

/** Creates the procedures of all services. Throws for an RPC that does not declare who may call it. */
export function createProcedures(
  services: readonly Service[],
  { authenticate, recheck, reread }: Authentication,
  idempotency: Idempotency,
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
      const handleIdempotently = getOption(method, accepts_idempotency_key)
        ? idempotency(method, validateAndHandle)
        : validateAndHandle;
      // The form is validated first, which bounds the request before it is compared with an earlier one. The rules are
      // validated later: by now, they may refuse a request that they accepted the first time.
      const validateFormAndHandle: Handle = (request, context) => {
        validate.form(method.input, request);
        return handleIdempotently(request, context);
      };
      const accessOption = declaredAccess(method);
      const path = `/${descriptor.typeName}/${method.name}`;

      return {
        method,
        path,
        beginSpan: tracing && ((protocol, header) => tracing.beginSpan(path, protocol, header)),
        admit: createAdmit(authenticate, accessOption),
        perform(call, caller, decode) {
          throwIfAborted(call);
          return abortable(
            call,
            chain(recheck(call, caller), (currentCaller) => {
              authorize(currentCaller, accessOption);
              const request = decode();
              return chain(handleFor(request, currentCaller, call), (response) => create(method.output, response));
            }),
          );
        },
      };

      function handleFor(request: Message, caller: Principal, call: Call): ReturnType<Handle> {
        const response = validateFormAndHandle(request, { caller, call });
        if (!(response instanceof Promise)) return response;
        return response.catch(async (error) => {
          // A statement found that the caller has changed, and did nothing. Its new state is authorized again.
          if (!isCallerChanged(error)) throw error;
          const currentCaller = await reread(call, caller);
          authorize(currentCaller, accessOption);
          return handleFor(request, currentCaller, call);
        });
      }
    }),
  );
}

/** Creates the procedure of an RPC with a bidirectional stream. */
export function createStreamProcedure<Input extends DescMessage, Output extends DescMessage>(
  method: DescMethodBiDiStreaming<Input, Output>,
  serve: ServeStream<MessageShape<Input>, MessageInitShape<Output>>,
  { authenticate, recheck }: Authentication,
  tracing?: Tracing,
): StreamProcedure {
  const accessOption = declaredAccess(method);
  const path = `/${method.parent.typeName}/${method.name}`;
  const validate = createValidate([method.input]);
  return {
    method,
    path,
    beginSpan: tracing && ((protocol, header) => tracing.beginSpan(path, protocol, header)),
    admit: createAdmit(authenticate, accessOption),
    recheck: (call, caller) =>
      chain(recheck(call, caller), (current) => {
        authorize(current, accessOption);
        return current;
      }),
    validate(message) {
      validate.form(method.input, message);
      validate.rules(method.input, message);
    },
    serve: serve as ServeStream<Message, unknown>,
  };
}

function createAdmit(authenticate: Authentication["authenticate"], accessOption: Access): Procedure["admit"] {
  return (call, authorization) =>
    abortable(
      call,
      chain(authenticate(call, authorization), (caller) => {
        if (caller.kind === "key") {
          call.workspaceId = caller.workspaceId;
          call.callerId = caller.keyId;
        }
        authorize(caller, accessOption);
        return caller;
      }),
    );
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function declaredAccess(method: DescMethod): Access {
  const declared = hasOption(method, access) ? getOption(method, access) : undefined;
  if (declared === undefined || (declared.scope === "" && !declared.operator)) {
    throw new Error(`${method} does not declare who may call it: set the option (latchkey.v1.access)`);
  }
  return declared;
}

/** Checks only the scopes of a key. Its permissions belong to the user's application, even if they have equal names. */
function authorize(caller: Principal, { scope, operator }: Access): void {
  if (caller.kind === "operator") {
    if (!operator) throw keyRequired(scope);
  } else if (scope === "") {
    throw operatorOnly();
  } else if (!covers(caller.scopes, scope)) {
    throw missingScope(scope);
  }
}

/** Waits for a step of a call. Aborts the call when its deadline passes or its client disconnects. */
function abortable<T>(call: Call, step: MaybePromise<T>): MaybePromise<T> {
  if (!(step instanceof Promise)) return step;
  const { client, closeEvent = "" } = call;
  return new Promise((resolve, reject) => {
    const onDeadline = () => abort(deadlineExceeded());
    const onClose = () => abort(performance.now() < call.deadline ? cancelled() : deadlineExceeded());
    const timer = setTimeout(onDeadline, Math.max(0, call.deadline - performance.now()));
    client?.once(closeEvent, onClose);

    function abort(reason: ApiError): void {
      stopWaiting();
      abortCall(call, reason);
      reject(reason);
    }

    function stopWaiting(): void {
      clearTimeout(timer);
      client?.off(closeEvent, onClose);
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

/** The error that the client gets for anything thrown. Errors that are not in the catalogue are only logged. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const databaseError = classifyError(error);
  return databaseError ? serviceUnavailable(error, databaseError.detail) : unexpectedError(error);
}
