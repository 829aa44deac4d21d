import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { Client, credentials, type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../../gen/google/rpc/status_pb.js";
import { type Answer, type ProtocolClient, patienceMs, withoutJudgement } from "./answer.js";

/** gRPC over one channel that lives as long as the laboratory and finds its replica again after each restart. */
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
      const options = { deadline: Date.now() + patienceMs };
      client.makeUnaryRequest(grpc.path, sameBytes, sameBytes, grpc.bytes, grpc.metadata, options, (error, bytes) => {
        if (error) return done(readError(error));
        const fields = fromBinary(method.output, bytes ?? new Uint8Array()) as unknown as Record<string, unknown>;
        done({ kind: "success", fields });
      });
    },
    close: () => client.close(),
  };
}

function sameBytes(bytes: Buffer): Buffer {
  return bytes;
}

export function readError(error: Pick<ServiceError, "code" | "details" | "metadata">): Answer {
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  // In these words grpc-js says that it found no connection to send the call on.
  if (error.details.startsWith("No connection established")) return { kind: "unsent" };
  // Without our details, it was not the service that answered.
  if (!(bytes instanceof Buffer)) return { kind: "unavailable", why: `grpc ${status[error.code]}` };
  const details = fromBinary(StatusSchema, bytes).details.map((detail) => anyUnpack(detail, ErrorInfoSchema));
  const code = details.find((info) => info !== undefined)?.reason.toLowerCase() ?? "no reason";
  return withoutJudgement.has(code) ? { kind: "unavailable", why: code } : { kind: "refused", code };
}
