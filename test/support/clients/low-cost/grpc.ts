import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Client, credentials, type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../../../gen/google/rpc/status_pb.js";
import { type CallResult, callTimeoutMs, inconclusiveCodes, type ProtocolClient } from "./client.js";

/** gRPC over one channel that stays open, and reconnects to its replica after each restart. */
export function openGrpcClient(port: number): ProtocolClient {
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure(), {
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 500,
    "grpc.enable_retries": 0,
    "grpc.use_local_subchannel_pool": 1,
  });

  return {
    name: "grpc",
    call({ grpc, method }, done) {
      const options = { deadline: Date.now() + callTimeoutMs };
      client.makeUnaryRequest(grpc.path, identity, identity, grpc.bytes, grpc.metadata, options, (error, bytes) => {
        if (error) return done(readError(error));
        const fields = fromBinary(method.output, bytes ?? new Uint8Array()) as unknown as Record<string, unknown>;
        done({ kind: "success", fields });
      });
    },
    close: () => client.close(),
  };
}

function identity(bytes: Buffer): Buffer {
  return bytes;
}

export function readError(error: Pick<ServiceError, "code" | "details" | "metadata">): CallResult {
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  // The message of grpc-js for a call that it could not send, because it had no connection.
  if (error.details.startsWith("No connection established")) return { kind: "unsent" };
  // Without error details, the response is not from the service.
  if (!(bytes instanceof Buffer)) return { kind: "unavailable", why: `grpc ${status[error.code]}` };
  const details = fromBinary(StatusSchema, bytes).details.map((detail) => anyUnpack(detail, ErrorInfoSchema));
  const code = details.find((info) => info !== undefined)?.reason.toLowerCase() ?? "no reason";
  return inconclusiveCodes.has(code) ? { kind: "unavailable", why: code } : { kind: "refused", code };
}
