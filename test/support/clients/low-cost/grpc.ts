import { fromBinary } from "@bufbuild/protobuf";
import { Client, credentials, type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.js";
import { findDetail, readStatusDetails } from "../status-details.js";
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
  // The message of grpc-js for a call that it could not send, because it had no connection.
  if (error.details.startsWith("No connection established")) return { kind: "unsent" };
  const details = readStatusDetails(error.metadata);
  if (details === undefined) return { kind: "unavailable", why: `grpc ${status[error.code]}` };
  const code = findDetail(details, ErrorInfoSchema)?.reason.toLowerCase() ?? "no reason";
  return inconclusiveCodes.has(code) ? { kind: "unavailable", why: code } : { kind: "refused", code };
}
