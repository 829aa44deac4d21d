// Depends on the OpenTelemetry API only. The operator chooses the SDK and where it sends spans.
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Attributes,
  ProxyTracerProvider,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import { catalogue, grpcStatusOf } from "../errors.js";
import { type AccessLog, type CallRecord, callCodeOf, type Protocol } from "./access-log.js";

/** Reads a header of a call; for gRPC, a metadata entry. */
export type ReadHeader = (name: string) => string | undefined;

/** Creates the spans of calls. */
export interface Tracing {
  /** Begins the span of a call of this RPC. Its parent is the client's span, from the trace headers. */
  beginSpan(path: string, protocol: Protocol, header: ReadHeader): Span;
  /** Wraps an access log: ends the span of each logged call, with the result of the call. */
  endSpans(logCall: AccessLog): AccessLog;
  /** Exports the spans that are still buffered. */
  flush(): Promise<void>;
}

/** The protocols as values of `rpc.system`. The semantic conventions define none for HTTP/JSON. */
const rpcSystems: Record<Protocol, string> = { grpc: "grpc", connect: "connect_rpc", http: "http_json" };

/** How long shutdown waits for spans to be exported. */
const flushTimeoutMs = 2_000;

/** Undefined if no SDK is registered by now. Calls then have no span, and pay nothing for tracing. */
export function createTracing(): Tracing | undefined {
  const provider = registeredProvider();
  if (provider === undefined) return undefined;

  return {
    beginSpan(path, protocol, header) {
      const [, service = "", method = ""] = path.split("/");
      const attributes = { "rpc.system": rpcSystems[protocol], "rpc.service": service, "rpc.method": method };
      const parent = propagation.extract(ROOT_CONTEXT, header, { keys: () => [], get: (read, name) => read(name) });
      return tracer().startSpan(`${service}/${method}`, { kind: SpanKind.SERVER, attributes }, parent);
    },

    endSpans: (logCall) => (record) => {
      logCall(record);
      if (record.span !== undefined) endCallSpan(record.span, record);
    },

    async flush() {
      const flushed = Promise.resolve(provider.forceFlush?.()).catch(() => {}); // the SDK reports its own errors
      await Promise.race([flushed, sleep(flushTimeoutMs, undefined, { ref: false })]);
    },
  };
}

/** Fetched each time: a tracer from before the SDK was registered might create no spans. */
const tracer = () => trace.getTracer("latchkey");

/** Without an SDK, the API returns a proxy. All such proxies delegate to one shared no-op provider. */
function registeredProvider(): (TracerProvider & { forceFlush?(): Promise<void> }) | undefined {
  const provider = trace.getTracerProvider();
  const registered = provider instanceof ProxyTracerProvider ? provider.getDelegate() : provider;
  return registered === new ProxyTracerProvider().getDelegate() ? undefined : registered;
}

/** Follows the semantic conventions: a server span has the status ERROR only if the server is at fault. */
function endCallSpan(span: Span, record: CallRecord): void {
  const { error: failure, protocol, requestId, workspaceId } = record;
  const code = callCodeOf(record);
  span.setAttributes({ "latchkey.code": code, "latchkey.request_id": requestId });
  if (workspaceId !== undefined) span.setAttribute("latchkey.workspace_id", workspaceId);
  if (code !== "ok") span.setAttribute("error.type", code);
  if (protocol === "grpc") span.setAttribute("rpc.grpc.status_code", failure ? grpcStatusOf(failure.code) : 0);
  const atFault = failure !== undefined && !failure.options.cancelled && catalogue[failure.code].status >= 500;
  if (atFault) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}

/**
 * Waits for the response of a backend, in a child span of the call's span. The span contains only the code of an error,
 * because its message may repeat values of the request.
 *
 * @param attributesOf further attributes, from the response or the error
 */
export async function inSpan<T>(
  parent: Span,
  attributes: { readonly "db.system.name": string; readonly "db.operation.name"?: string },
  response: Promise<T>,
  attributesOf: (outcome: unknown) => Attributes = () => ({}),
): Promise<T> {
  const parentContext = trace.setSpan(ROOT_CONTEXT, parent);
  const name = attributes["db.operation.name"] ?? attributes["db.system.name"];
  const span = tracer().startSpan(name, { kind: SpanKind.CLIENT, attributes }, parentContext);
  try {
    const result = await response;
    span.setAttributes(attributesOf(result));
    return result;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
    span.setAttributes({ ...attributesOf(error), "error.type": code });
    span.setStatus({ code: SpanStatusCode.ERROR });
    throw error;
  } finally {
    span.end();
  }
}
