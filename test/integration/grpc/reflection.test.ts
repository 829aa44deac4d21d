import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { describe, expect, it } from "vitest";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.js";
import { openFileApp } from "../../support/file-service.js";
import { operatorKey } from "../../support/harness.js";

const run = promisify(execFile);

const app = await openFileApp();

/** Runs `buf curl` in a directory without proto files. */
async function bufCurl(reflection: string, path: string, ...extraArgs: string[]): Promise<string> {
  const args = [
    "curl",
    "--protocol",
    "grpc",
    "--http2-prior-knowledge",
    "--reflect-protocol",
    reflection,
    ...extraArgs,
  ];
  const { stdout } = await run(buf, [...args, `http://${app.grpcAddress}${path}`], { cwd: "/" });
  return stdout;
}

const buf = `${process.cwd()}/node_modules/.bin/buf`;

describe.each(["grpc-v1", "grpc-v1alpha"])("server reflection by %s, without proto files", (reflection) => {
  it("lists every method of every service, including health and reflection", async () => {
    const methods = (await bufCurl(reflection, "", "--list-methods")).trim().split("\n");
    const services = new Set(methods.map((method) => method.split("/")[0]));
    expect([...services].sort()).toEqual([
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
      "latchkey.v1.ApisService",
      "latchkey.v1.IdentitiesService",
      "latchkey.v1.KeysService",
      "latchkey.v1.PermissionsService",
      "latchkey.v1.RateLimitsService",
      "latchkey.v1.VerifierService",
      "latchkey.v1.WorkspacesService",
    ]);
    expect(methods).toContain("latchkey.v1.KeysService/VerifyKey");
    expect(methods).toContain("latchkey.v1.VerifierService/Delegate");
    expect(methods).toContain("grpc.health.v1.Health/Watch");
  });

  it("lets a client call methods", async () => {
    const operator = ["-H", `Authorization: Bearer ${operatorKey}`];
    const created = await bufCurl(
      reflection,
      "/latchkey.v1.WorkspacesService/CreateWorkspace",
      ...operator,
      "-d",
      '{"name": "Acme"}',
    );
    expect(JSON.parse(created)).toMatchObject({ workspaceId: expect.stringMatching(/^ws_/) });
    const health = await bufCurl(
      reflection,
      "/grpc.health.v1.Health/Check",
      "-d",
      '{"service": "latchkey.v1.KeysService"}',
    );
    expect(JSON.parse(health)).toEqual({ status: "SERVING" });
  });
});

it("server reflection resolves the types of error details, which grpcurl needs to show them", async () => {
  const client = createClient(ServerReflection, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` }));
  const symbols = ["google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.Unknown"];
  const requests = symbols.map((value) => ({ messageRequest: { case: "fileContainingSymbol", value } }) as const);
  const responses = [];
  for await (const { messageResponse } of client.serverReflectionInfo(iterate(requests)))
    responses.push(messageResponse.case);
  expect(responses).toEqual(["fileDescriptorResponse", "fileDescriptorResponse", "errorResponse"]);
});

async function* iterate<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}
