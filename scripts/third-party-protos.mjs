// Gathers the third-party protos that ours import, or that the service speaks, into third_party/ (ignored by git).
// All come from npm packages, so that package-lock.json pins them; none is copied into this repository.
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

// The package leaves out the first folder of the path that everybody imports it by.
cpSync("node_modules/grpc-health-check/proto", "third_party/grpc", { recursive: true });

// No npm package ships this file, but @bufbuild/protovalidate carries its descriptor: the very version that validates.
const validate = "third_party/buf/validate/validate.proto";
mkdirSync(dirname(validate), { recursive: true });
writeFileSync(validate, printFile(file_buf_validate_validate));
