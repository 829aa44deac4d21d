import { type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { ApisService } from "../../gen/latchkey/v1/apis_service_pb.js";
import { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { PermissionsService } from "../../gen/latchkey/v1/permissions_service_pb.js";
import { RateLimitsService } from "../../gen/latchkey/v1/rate_limits_service_pb.js";
import { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import { checkCredential, checkIdempotencyKey } from "./credential.js";
import { toLatchkeyError } from "./protobuf-error.js";
import { checkUrl } from "./url.js";

export {
  type FieldError,
  isLatchkeyError,
  LatchkeyError,
  type LatchkeyErrorCode,
  type LatchkeyErrorType,
} from "./error.js";

/** Typed clients of a running service, one per resource, with messages of protobuf. */
export interface ProtobufClient {
  readonly keys: Client<typeof KeysService>;
  readonly identities: Client<typeof IdentitiesService>;
  readonly apis: Client<typeof ApisService>;
  /** Permissions and roles. */
  readonly permissions: Client<typeof PermissionsService>;
  /** The limiter that needs no keys. */
  readonly rateLimits: Client<typeof RateLimitsService>;
  readonly workspaces: Client<typeof WorkspacesService>;
}

/** The credential and the transport of the calls. */
export type ProtobufClientOptions = {
  /** An API key, or the operator credential for workspace operations. */
  readonly key: string;
} & (
  | {
      /** The service's HTTP address, such as `https://keys.example.com`. Calls use Connect over fetch. */
      readonly url: string;
    }
  | {
      /** Another transport, for example gRPC with `createGrpcTransport` of @connectrpc/connect-node. */
      readonly transport: Transport;
    }
);

/**
 * A client whose failed calls throw a LatchkeyError. It runs in Node, in browsers and on edge runtimes: it needs only
 * fetch, and with a transport of your own not even that. A call that fails without a response from the service throws
 * Connect's own ConnectError.
 */
export function createProtobufClient(options: ProtobufClientOptions): ProtobufClient {
  const baseTransport = "transport" in options ? options.transport : connectTo(options.url);
  const transport = translateErrors(authorize(baseTransport, options.key));
  return {
    keys: createClient(KeysService, transport),
    identities: createClient(IdentitiesService, transport),
    apis: createClient(ApisService, transport),
    permissions: createClient(PermissionsService, transport),
    rateLimits: createClient(RateLimitsService, transport),
    workspaces: createClient(WorkspacesService, transport),
  };
}

/** Calls have a default timeout, so that they do not wait forever. A call can set its own `timeoutMs`. */
function connectTo(url: string): Transport {
  checkUrl("url", url);
  return createConnectTransport({
    baseUrl: url,
    defaultTimeoutMs: 10_000,
    // Connect would report an unreachable service as `fetch failed`, with status unknown.
    fetch: (input, init) =>
      globalThis.fetch(input, init).catch((cause: unknown) => {
        if (init?.signal?.aborted) throw cause;
        throw new ConnectError(
          `The service at ${url} cannot be reached.`,
          Code.Unavailable,
          undefined,
          undefined,
          cause,
        );
      }),
  });
}

/**
 * Wraps the transport. Interceptors are not possible: they are set when a transport is created, and the user may pass
 * one.
 */
function authorize(transport: Transport, key: string): Transport {
  checkCredential(key);
  const withKey = (init: ConstructorParameters<typeof Headers>[0]) => {
    const headers = new Headers(init);
    checkIdempotencyKey(headers.get("idempotency-key"));
    headers.set("authorization", `Bearer ${key}`);
    return headers;
  };
  return {
    unary: (method, signal, timeoutMs, headers, ...rest) =>
      transport.unary(method, signal, timeoutMs, withKey(headers), ...rest),
    stream: (method, signal, timeoutMs, headers, ...rest) =>
      transport.stream(method, signal, timeoutMs, withKey(headers), ...rest),
  };
}

function translateErrors(transport: Transport): Transport {
  const rethrow = (error: unknown) => {
    throw toLatchkeyError(error) ?? error;
  };
  return {
    unary: (...call) => transport.unary(...call).catch(rethrow),
    stream: (...call) => transport.stream(...call).catch(rethrow),
  };
}
