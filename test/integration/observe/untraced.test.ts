import { createGrpcTransport } from "@connectrpc/connect-node";
import { ProxyTracer, propagation } from "@opentelemetry/api";
import { expect, it, onTestFinished, vi } from "vitest";
import { KeysService } from "../../../gen/latchkey/v1/keys_service_pb.js";
import { createWorkspace, send } from "../../support/clients/http-requests.js";
import { openFileApp } from "../../support/file-service.js";

const app = await openFileApp();

it("without an OpenTelemetry SDK, the service reads no trace headers and creates no spans", async () => {
  const extract = vi.spyOn(propagation, "extract");
  const startSpan = vi.spyOn(ProxyTracer.prototype, "startSpan");
  onTestFinished(() => void vi.restoreAllMocks());
  const { key } = await createWorkspace(app.httpUrl);
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const headers = { traceparent, "content-type": "application/json" };
  expect((await send(app.httpUrl, "/v2/keys.listKeys", { key, headers, body: "{}" })).status).toBe(200);
  const grpc = createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` });
  await grpc.unary(KeysService.method.listKeys, undefined, 5_000, { authorization: `Bearer ${key}`, traceparent }, {});
  expect(extract).not.toHaveBeenCalled();
  expect(startSpan).not.toHaveBeenCalled();
});
