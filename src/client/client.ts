import { type OperationKind, type Operations, operations } from "../../gen/client.js";
import { checkCredential } from "./credential.js";
import { type CallOptions, createHttp, type HttpOptions } from "./http.js";
import { type Page, Pages } from "./pages.js";

export type * from "../../gen/client.js";
export {
  type FieldError,
  isLatchkeyError,
  LatchkeyError,
  type LatchkeyErrorCode,
  type LatchkeyErrorType,
  NoResponseError,
} from "./error.js";
export type { CallOptions } from "./http.js";
export { type Page, Pages, type Pagination } from "./pages.js";

/** All operations, by the two parts of their paths: `/v2/keys.createKey` is `client.keys.createKey`. */
export type LatchkeyClient = {
  readonly [Group in keyof Operations]: {
    readonly [Name in keyof Operations[Group]]: MethodOf<Operations[Group][Name]>;
  };
};

/** A method takes the body of its request, and returns the `data` of the response. */
type MethodOf<Operation> = Operation extends { request: infer Request; item: infer Item }
  ? (...args: ArgumentsOf<Request>) => Pages<Item>
  : Operation extends { request: infer Request; response: infer Response }
    ? (...args: ArgumentsOf<Request>) => Promise<Response>
    : never;

/** The request can be omitted if all of its fields can. */
type ArgumentsOf<Request> =
  Record<never, never> extends Request
    ? [request?: Request, options?: CallOptions]
    : [request: Request, options?: CallOptions];

export type LatchkeyClientOptions = HttpOptions;

/**
 * A client of the HTTP/JSON interface, with plain objects. It runs in Node, in browsers and on edge runtimes: it needs
 * only fetch. A call that the service refuses throws a LatchkeyError, and one without a response a NoResponseError.
 */
export function createClient(options: LatchkeyClientOptions): LatchkeyClient {
  checkCredential(options.key);
  const call = createHttp(options);

  const single =
    (operation: string, kind: OperationKind) =>
    async (request: unknown = {}, options: CallOptions = {}) =>
      (await call(operation, kind, request, options)).data;

  const list =
    (operation: string) =>
    (request: object = {}, options: CallOptions = {}) =>
      new Pages(async (cursor) => {
        const { data, pagination } = await call(operation, "list", { ...request, ...(cursor && { cursor }) }, options);
        return { data, pagination } as Page<unknown>;
      });

  const groups = Object.entries(operations).map(([group, kinds]) => {
    const methods = Object.entries(kinds).map(([name, kind]: [string, OperationKind]) => {
      const operation = `${group}.${name}`;
      return [name, kind === "list" ? list(operation) : single(operation, kind)];
    });
    return [group, Object.fromEntries(methods)];
  });
  return Object.fromEntries(groups);
}
