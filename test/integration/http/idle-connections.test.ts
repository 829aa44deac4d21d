import { once } from "node:events";
import { connect } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { openTestApp } from "../../support/harness.js";

it("an idle keep-alive connection is closed after the keep-alive timeout", async () => {
  const app = await openTestApp({ limits: { keepAliveMs: 200 } });
  onTestFinished(() => app.close());
  const { hostname, port } = new URL(app.httpUrl);
  const socket = connect(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  let received = "";
  socket.on("data", (bytes) => {
    received += bytes;
  });
  socket.write("GET /livez HTTP/1.1\r\nHost: latchkey\r\n\r\n");
  await once(socket, "close");
  expect(received.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200"]);
  expect(received).toMatch(/connection: keep-alive/i);
});
