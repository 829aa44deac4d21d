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
import { type Access, access } from "../../gen/latchkey/v1/access_pb.js";
import type { Authenticate } from "../auth/authenticate.js";
import { type CallContext, covers, type Handlers, type Principal } from "../auth/principal.js";
import {
  deadlineExceeded,
  Failure,
  operatorOnly,
  permissionLacking,
  serviceUnavailable,
  unexpectedError,
} from "../errors.js";
import { after, type Soon } from "../soon.js";
import { isOutOfReach } from "../storage/postgres.js";
import { createValidate } from "./validate.js";

/** A service's descriptor together with its handlers. */
export interface Service {
  readonly descriptor: DescService;
  readonly handlers: Record<string, Handler>;
}

type Handler = (request: never, context: CallContext) => Soon<MessageInitShape<DescMessage>>;

/** Ties handlers to their descriptor; the compiler sees to it that they belong together. */
export function service<Descriptor extends DescService>(
  descriptor: Descriptor,
  handlers: Handlers<Descriptor>,
): Service {
  return { descriptor, handlers };
}

/** What every door knows of a call. */
export interface Call {
  readonly requestId: string;
  /** When the call is to be answered at the latest, in milliseconds of the wall clock. */
  readonly deadline: number;
  /** What the call came over, where the door can tell. */
  readonly connection?: object;
}

/** One RPC as every door calls it: first admit, then perform. */
export interface Procedure {
  readonly method: DescMethodUnary;
  /** The path that every RPC protocol calls it by: `/latchkey.v1.KeysService/ListKeys`. */
  readonly path: string;
  /** authenticate -> authorise. Comes before the body is looked at: who may not call learns nothing about it. */
  admit(call: Call, authorization: readonly string[]): Soon<Principal>;
  /** decode -> validate -> handle. */
  perform(call: Call, caller: Principal, decode: () => Message): Soon<Message>;
}

/** The largest request that any door reads, in bytes. */
export const largestMessage = 1024 * 1024;

/** How long a call may take that brings no deadline of its own. */
export const longestCallMs = 10_000;

/** Makes the procedures of all services. Refuses an RPC that declares nobody who may call it. */
export function createProcedures(services: readonly Service[], authenticate: Authenticate): Procedure[] {
  const validate = createValidate(services.flatMap(({ descriptor }) => descriptor.methods.map(({ input }) => input)));

  return services.flatMap(({ descriptor, handlers }) =>
    descriptor.methods.map((method): Procedure => {
      if (!isUnary(method)) throw new Error(`${method}: only unary RPCs are served`);
      const handler = handlers[method.localName] as (request: Message, context: CallContext) => ReturnType<Handler>;
      const accessOption = declaredAccess(method);

      return {
        method,
        path: `/${descriptor.typeName}/${method.name}`,
        admit: ({ deadline, connection }, authorization) =>
          within(
            deadline,
            after(authenticate(authorization, connection), (caller) => {
              authorise(caller, accessOption);
              return caller;
            }),
          ),
        perform({ requestId, deadline }, caller, decode) {
          const request = decode();
          validate(method.input, request);
          return within(
            deadline,
            after(handler(request, { caller, requestId }), (response) => create(method.output, response)),
          );
        },
      };
    }),
  );
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function declaredAccess(method: DescMethodUnary): Access {
  const declared = hasOption(method, access) ? getOption(method, access) : undefined;
  if (declared === undefined || (declared.permission === "" && !declared.operator)) {
    throw new Error(`${method} declares nobody who may call it: give it the option (latchkey.v1.access)`);
  }
  return declared;
}

function authorise(caller: Principal, { permission, operator }: Access): void {
  const allowed = caller.kind === "operator" ? operator : permission !== "" && covers(caller.permissions, permission);
  if (!allowed) throw permission === "" ? operatorOnly() : permissionLacking(permission);
}

/** Waits for a step of a call no longer than the call's deadline, whatever a backend does. */
function within<T>(deadline: number, step: Soon<T>): Soon<T> {
  if (!(step instanceof Promise)) return step;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(deadlineExceeded()), Math.max(0, deadline - Date.now()));
    step.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}

/** What the caller is told about anything that was thrown. What is not in the catalogue stays in the log. */
export function toFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  return isOutOfReach(error) ? serviceUnavailable(error) : unexpectedError(error);
}
