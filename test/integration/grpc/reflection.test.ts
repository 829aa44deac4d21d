import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";

const run = promisify(execFile);

let app: TestApp;
beforeAll(async () => {
  app = await openTestApp();
});
afterAll(() => app.close());

/** Runs `buf curl` where there are no proto files. */
async function bufCurl(reflection: string, path: string, ...more: string[]): Promise<string> {
  const words = ["curl", "--protocol", "grpc", "--http2-prior-knowledge", "--reflect-protocol", reflection, ...more];
  const { stdout } = await run(buf, [...words, `http://${app.grpcAddress}${path}`], { cwd: "/" });
  return stdout;
}

const buf = `${process.cwd()}/node_modules/.bin/buf`;

describe.each(["grpc-v1", "grpc-v1alpha"])("by server reflection of %s, without any proto file,", (reflection) => {
  it("every method of every service is listed, those of health and reflection too", async () => {
    const methods = (await bufCurl(reflection, "", "--list-methods")).trim().split("\n");
    const services = new Set(methods.map((method) => method.split("/")[0]));
    expect([...services].sort()).toEqual([
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
      "latchkey.v1.IdentitiesService",
      "latchkey.v1.KeysService",
      "latchkey.v1.WorkspacesService",
    ]);
    expect(methods).toContain("latchkey.v1.KeysService/VerifyKey");
    expect(methods).toContain("grpc.health.v1.Health/Watch");
  });

  it("methods are called", async () => {
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

it("the types of error details can be looked up, as grpcurl does to show them", async () => {
  const client = createClient(ServerReflection, createGrpcTransport({ baseUrl: `http://${app.grpcAddress}` }));
  const asked = ["google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.Unheard"];
  const requests = asked.map((value) => ({ messageRequest: { case: "fileContainingSymbol", value } }) as const);
  const answers = [];
  for await (const { messageResponse } of client.serverReflectionInfo(inTurn(requests)))
    answers.push(messageResponse.case);
  expect(answers).toEqual(["fileDescriptorResponse", "fileDescriptorResponse", "errorResponse"]);
});

async function* inTurn<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}
