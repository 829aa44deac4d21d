// Copies the third-party protos that the project's protos import or the service implements to third_party/, which git
// ignores. All come from npm packages, so package-lock.json pins them and the repository needs no copies.
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { file_buf_validate_validate } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { printFile } from "./print-proto.mjs";

const sources = {
  "node_modules/google-proto-files": [
    "google/api/annotations.proto",
    "google/api/http.proto",
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
  ],
  "node_modules/@grpc/reflection/build/proto": ["grpc/reflection/v1/reflection.proto"],
};

for (const [root, paths] of Object.entries(sources)) {
  for (const path of paths) cpSync(`${root}/${path}`, `third_party/${path}`);
}

// The package omits the first folder of the usual import path.
cpSync("node_modules/grpc-health-check/proto", "third_party/grpc", { recursive: true });

// No npm package contains this file, but @bufbuild/protovalidate contains its descriptor, in the version that it uses.
const validate = "third_party/buf/validate/validate.proto";
mkdirSync(dirname(validate), { recursive: true });
writeFileSync(validate, printFile(file_buf_validate_validate));
