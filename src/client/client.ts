import { type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { IdentitiesService } from "../../gen/latchkey/v1/identities_service_pb.js";
import { KeysService } from "../../gen/latchkey/v1/keys_service_pb.js";
import { WorkspacesService } from "../../gen/latchkey/v1/workspaces_service_pb.js";
import { toLatchkeyError } from "./error.js";

export {
  type FieldError,
  isLatchkeyError,
  LatchkeyError,
  type LatchkeyErrorCode,
  type LatchkeyErrorType,
} from "./error.js";

/** Typed clients of a running service, one for each resource. */
export interface LatchkeyClient {
  readonly keys: Client<typeof KeysService>;
  readonly identities: Client<typeof IdentitiesService>;
  readonly workspaces: Client<typeof WorkspacesService>;
}

/** Whose calls they are, and the way they take. */
export type LatchkeyClientOptions = {
  /** An API key, or the operator's credential for the workspaces. */
  readonly key: string;
} & (
  | {
      /** The service's HTTP address, such as `https://keys.example.com`: calls are made with Connect, by fetch. */
      readonly url: string;
    }
  | {
      /** Another way: gRPC by `createGrpcTransport` of @connectrpc/connect-node, for instance. */
      readonly transport: Transport;
    }
);

/**
 * A client whose failed calls throw a LatchkeyError. It runs in Node, in browsers and on the edge: it needs nothing but
 * fetch, and with a transport not even that. What fails before the service has answered is Connect's own ConnectError.
 */
export function createLatchkeyClient(options: LatchkeyClientOptions): LatchkeyClient {
  const way = "transport" in options ? options.transport : connectTo(options.url);
  const transport = translateErrors(authorize(way, options.key));
  return {
    keys: createClient(KeysService, transport),
    identities: createClient(IdentitiesService, transport),
    workspaces: createClient(WorkspacesService, transport),
  };
}

/** A service that does not answer is not waited for for ever; a call can set its own `timeoutMs`. */
function connectTo(url: string): Transport {
  return createConnectTransport({
    baseUrl: url,
    defaultTimeoutMs: 10_000,
    // Connect would tell `fetch failed`, status unknown, of a service that is not there.
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

/** Wraps the transport, not its calls by an interceptor: those are set when a transport is made, and it may be given. */
function authorize(transport: Transport, key: string): Transport {
  // Refused here, because Headers would name the whole value, which is secret, in its error.
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new TypeError(
      "The key must be printable ASCII without spaces; one that was read from a file may need trim().",
    );
  }
  const withKey = (given: ConstructorParameters<typeof Headers>[0]) => {
    const headers = new Headers(given);
    // Refused here, because a gRPC server drops such metadata without a word: the call would be made without its key.
    if (!/^[\x20-\x7e]*$/.test(headers.get("idempotency-key") ?? "")) {
      throw new TypeError("The Idempotency-Key must be printable ASCII.");
    }
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
