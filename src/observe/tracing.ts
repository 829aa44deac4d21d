// The API of OpenTelemetry alone. Which SDK there is, and where it sends spans, is for those to say who run the service.
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

/** Reads a header of a call, or its like in gRPC. */
export type ReadHeader = (name: string) => string | undefined;

/** What makes the spans of calls. */
export interface Tracing {
  /** Begins the span of a call of this RPC, under the one that its client tells of. */
  beginSpan(path: string, protocol: Protocol, header: ReadHeader): Span;
  /** Ends the span of each call that is told of, with how it went. */
  endSpans(logCall: AccessLog): AccessLog;
  /** Sends the spans that still wait to be sent. */
  flush(): Promise<void>;
}

/** What the conventions call our protocols. For HTTP/JSON they have no name. */
const systems: Record<Protocol, string> = { grpc: "grpc", connect: "connect_rpc", http: "http_json" };

/** How long the end of the service waits for spans to be sent. */
const flushMs = 2_000;

/** Undefined if no SDK has been registered by now: then no call has a span, and none pays for one. */
export function createTracing(): Tracing | undefined {
  const provider = registeredProvider();
  if (provider === undefined) return undefined;

  return {
    beginSpan(path, protocol, header) {
      const [, service = "", method = ""] = path.split("/");
      const attributes = { "rpc.system": systems[protocol], "rpc.service": service, "rpc.method": method };
      const parent = propagation.extract(ROOT_CONTEXT, header, { keys: () => [], get: (read, name) => read(name) });
      return tracer().startSpan(`${service}/${method}`, { kind: SpanKind.SERVER, attributes }, parent);
    },

    endSpans: (logCall) => (record) => {
      logCall(record);
      if (record.span !== undefined) endCallSpan(record.span, record);
    },

    async flush() {
      const flushed = Promise.resolve(provider.forceFlush?.()).catch(() => {}); // the SDK says itself what went wrong
      await Promise.race([flushed, sleep(flushMs, undefined, { ref: false })]);
    },
  };
}

/** Asked for anew: one from before an SDK was registered might know nothing of it. */
const tracer = () => trace.getTracer("latchkey");

/** What the API hands out without an SDK does nothing; all such providers share one that does nothing. */
function registeredProvider(): (TracerProvider & { forceFlush?(): Promise<void> }) | undefined {
  const provider = trace.getTracerProvider();
  const registered = provider instanceof ProxyTracerProvider ? provider.getDelegate() : provider;
  return registered === new ProxyTracerProvider().getDelegate() ? undefined : registered;
}

/** As the conventions have it, a span failed if the service is at fault. */
function endCallSpan(span: Span, record: CallRecord): void {
  const { failure, protocol, requestId, workspaceId } = record;
  const code = callCodeOf(record);
  span.setAttributes({ "latchkey.code": code, "latchkey.request_id": requestId });
  if (workspaceId !== undefined) span.setAttribute("latchkey.workspace_id", workspaceId);
  if (code !== "ok") span.setAttribute("error.type", code);
  if (protocol === "grpc") span.setAttribute("rpc.grpc.status_code", failure ? grpcStatusOf(failure.code) : 0);
  const atFault = failure !== undefined && !failure.more.cancelled && catalogue[failure.code].status >= 500;
  if (atFault) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}

/**
 * Waits for the answer of a backend, in a span of its own under the one of a call. Of an error only its code is told: its
 * words may repeat what was asked for.
 *
 * @param learn what the answer, or the error, tells of the question
 */
export async function inSpan<T>(
  parent: Span,
  attributes: { readonly "db.system.name": string; readonly "db.operation.name"?: string },
  answer: Promise<T>,
  learn: (outcome: unknown) => Attributes = () => ({}),
): Promise<T> {
  const under = trace.setSpan(ROOT_CONTEXT, parent);
  const name = attributes["db.operation.name"] ?? attributes["db.system.name"];
  const span = tracer().startSpan(name, { kind: SpanKind.CLIENT, attributes }, under);
  try {
    const found = await answer;
    span.setAttributes(learn(found));
    return found;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
    span.setAttributes({ ...learn(error), "error.type": code });
    span.setStatus({ code: SpanStatusCode.ERROR });
    throw error;
  } finally {
    span.end();
  }
}
