import { once } from "node:events";
import { connect } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { openTestApp } from "../../support/harness.js";

it("a connection that was answered, and on which nothing more is asked, is closed after a while", async () => {
  const app = await openTestApp({ limits: { keepAliveMs: 200 } });
  onTestFinished(() => app.close());
  const { hostname, port } = new URL(app.httpUrl);
  const socket = connect(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  let answers = "";
  socket.on("data", (bytes) => {
    answers += bytes;
  });
  socket.write("GET /livez HTTP/1.1\r\nHost: latchkey\r\n\r\n");
  await once(socket, "close");
  expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200"]);
  expect(answers).toMatch(/connection: keep-alive/i);
});
