import { Health } from "../../gen/grpc/health/v1/health_pb.js";
import { mintId } from "../ids.js";

/** The paths of health checks. They are never shed: their result matters most under overload. */
export const alwaysServed: Readonly<Record<"http" | "grpc", ReadonlySet<string>>> = {
  http: new Set(["/livez", "/readyz", "/v2/liveness"]),
  grpc: new Set(Health.methods.map(({ name }) => `/${Health.typeName}/${name}`)),
};

/**
 * Encodes a response for all shed calls, once, because a shed call must cost a fraction of a served one. The result
 * copies it, with another request id.
 */
export function prepareResponse(encode: (requestId: string) => Uint8Array): (requestId: string) => Buffer {
  const sampleId = mintId("req");
  const template = Buffer.from(encode(sampleId));
  const idOffsets: number[] = [];
  for (let offset = template.indexOf(sampleId); offset >= 0; offset = template.indexOf(sampleId, offset + 1)) {
    idOffsets.push(offset);
  }
  return (requestId) => {
    const bytes = Buffer.from(template);
    for (const offset of idOffsets) bytes.write(requestId, offset, "latin1");
    return bytes;
  };
}
