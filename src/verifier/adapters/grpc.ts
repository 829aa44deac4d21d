import {
  Metadata,
  ServerInterceptingCall,
  type ServerInterceptor,
  type ServerMethodDefinition,
  status,
} from "@grpc/grpc-js";
import type { ValidKey } from "../result.js";
import { type AdapterOptions, createAuthorize, type Refusal, type Requirement, settle } from "./authorization.js";

export type { AdapterOptions } from "./authorization.js";

export interface GrpcAdapterOptions extends AdapterOptions {
  /** The permission query of a method, by its `path`. Undefined: any valid key. `false`: no key. */
  readonly permissions?: (method: ServerMethodDefinition<unknown, unknown>) => Requirement;
}

/** By the metadata of the call. It is the same object in the interceptor and in the handler, and clients cannot set it. */
const keys = new WeakMap<object, ValidKey>();

/** The verified key of a call, for its handler. Throws for a method that needs no key. */
export function apiKeyOf(call: { readonly metadata: object }): ValidKey {
  const key = keys.get(call.metadata);
  if (key === undefined) throw new Error("The call has no API key, because its method needs none.");
  return key;
}

/**
 * A server interceptor that requires a valid key for all methods. A stream is authorized at its start. It must be the
 * last interceptor if others replace the metadata.
 *
 *     new Server({ interceptors: [latchkey({ verifier, permissions: ({ path }) => queries[path] })] });
 */
export function latchkey({ permissions, ...options }: GrpcAdapterOptions): ServerInterceptor {
  const authorize = createAuthorize(options);
  return (method, call) => {
    const fail = () => call.sendStatus({ code: status.INTERNAL, details: "The call cannot be authorized." });
    return new ServerInterceptingCall(call, {
      start: (start) =>
        start({
          onReceiveMetadata(metadata, next) {
            let authorized: ReturnType<typeof authorize>;
            try {
              const query = permissions?.(method);
              if (query === false) return next(metadata);
              authorized = authorize(metadata.get("authorization").map(String), query);
            } catch (error) {
              options.onError?.(error);
              return fail(); // thrown here, the error would end the process
            }
            settle(
              authorized,
              (outcome) => {
                if (!outcome.valid) return call.sendStatus(toStatus(outcome));
                keys.set(metadata, outcome);
                next(metadata);
              },
              fail,
            );
          },
        }),
    });
  };
}

function toStatus({ code, headers, body }: Refusal) {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
  // The numbers of Connect's codes are those of gRPC.
  return { code: code as number, details: body.message, metadata };
}
