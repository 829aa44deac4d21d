// The example over gRPC, with clients created from the proto files at run time. LATCHKEY_CREDENTIAL is a key of the
// workspace.
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { ErrorInfoSchema } from "@latchkey/client/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "@latchkey/client/gen/google/rpc/status_pb.js";

const { LATCHKEY_ADDRESS: address = "127.0.0.1:50051", LATCHKEY_CREDENTIAL: credential } = process.env;

// The package contains the proto files with all their imports.
const keysProto = fileURLToPath(import.meta.resolve("latchkey/proto/latchkey/v1/keys_service.proto"));
const protoFolder = join(keysProto, "../../..");
const definition = loadSync(["latchkey/v1/keys_service.proto", "latchkey/v1/identities_service.proto"], {
  includeDirs: [protoFolder],
  enums: String,
});
const { KeysService, IdentitiesService } = grpc.loadPackageDefinition(definition).latchkey.v1;
const keys = new KeysService(address, grpc.credentials.createInsecure());
const identities = new IdentitiesService(address, grpc.credentials.createInsecure());

/** Calls a method with a key and a deadline of ten seconds. */
function call(client, method, request, key = credential) {
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Bearer ${key}`);
  return promisify(client[method]).call(client, request, metadata, { deadline: Date.now() + 10_000 });
}

const { identityId } = await call(identities, "createIdentity", { externalId: `user_${randomUUID()}` });
print(`created identity ${identityId}`);

const { key, keyId } = await call(keys, "createKey", { name: "example", identityId }); // the key is returned only here
print(`created key ${keyId}`);

const before = await call(keys, "verifyKey", { key });
print(`verified: ${before.code.replace("VERIFICATION_CODE_", "")}`);

await call(keys, "updateKey", { keyId, enabled: false });
const after = await call(keys, "verifyKey", { key });
print(`verified: ${after.code.replace("VERIFICATION_CODE_", "")}`);

try {
  await call(keys, "listKeys", {}, key);
} catch (error) {
  print(`refused: ${errorInfo(error)?.metadata.type}`);
}

keys.close();
identities.close();

/** The machine-readable part of the status: google.rpc.ErrorInfo, whose reason is the error code. */
function errorInfo(error) {
  const [bytes] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (bytes === undefined) throw error;
  const { details } = fromBinary(StatusSchema, bytes);
  return details.map((detail) => anyUnpack(detail, ErrorInfoSchema)).find(Boolean);
}

function print(line) {
  process.stdout.write(`${line}\n`);
}
