import { Server, ServerCredentials } from "@grpc/grpc-js";
import { expect, it } from "vitest";
import { limitHeaderList, takeStreams } from "../../../src/grpc/internals.js";

it("the installed grpc-js has the internals that are used", () => {
  const server = new Server();
  limitHeaderList(server, 1_024, 10);
  server.createConnectionInjector(ServerCredentials.createInsecure());
  const { http2Server, serveStream } = takeStreams(server);
  expect(http2Server.listenerCount("stream")).toBe(0);
  expect(http2Server.listenerCount("session")).toBe(1);
  expect(serveStream).toBeTypeOf("function");
  server.forceShutdown();
});

it.each([
  ["the options of its servers", () => limitHeaderList({} as Server, 1_024, 10), "`commonServerOptions`"],
  ["its servers", () => takeStreams({} as Server), "`http2Servers`"],
  ["its stream listener", () => takeStreams(serverWithoutStreamListener()), "`stream` events"],
])("a grpc-js without %s is refused at start-up, with a remedy", (_case, use, part) => {
  expect(use).toThrow(part);
  expect(use).toThrow(/grpc-js is not version 1\.14\.7.*adapt src\/grpc\/internals\.ts/);
});

function serverWithoutStreamListener(): Server {
  const server = new Server();
  server.createConnectionInjector(ServerCredentials.createInsecure());
  takeStreams(server);
  return server;
}
