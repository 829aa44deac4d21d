import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { openProxy } from "../../support/proxy.js";

/** A server that says its name before every text that it returns. */
async function echo(name: string): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}).on("data", (text) => socket.write(`${name}:${text}`)));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `tcp://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function proxied() {
  const proxy = await openProxy(await echo("first"));
  onTestFinished(proxy.close);
  const enter = async () => {
    const socket = connect(Number(new URL(proxy.url).port), "127.0.0.1").setEncoding("utf8");
    socket.on("error", () => {});
    let received = "";
    socket.on("data", (text) => {
      received += text;
    });
    await once(socket, "connect");
    return { socket, received: () => received };
  };
  return { proxy, enter };
}

it("delayed bytes arrive late, in their order, also across the end of the delay", async () => {
  const { proxy, enter } = await proxied();
  const { socket, received } = await enter();
  proxy.delay(100);
  socket.write("a");
  await sleep(60);
  expect(received()).toBe("");
  proxy.delay(0);
  socket.write("b");
  await expect.poll(received).toMatch(/^first:a(first:)?b$/);
});

it("a blackholed connection stays silent for ever, while new ones work", async () => {
  const { proxy, enter } = await proxied();
  const old = await enter();
  old.socket.write("a");
  await expect.poll(old.received).toBe("first:a");
  proxy.blackhole();
  old.socket.write("b");
  const young = await enter();
  young.socket.write("c");
  await expect.poll(young.received).toBe("first:c");
  proxy.resume();
  await sleep(50);
  expect(old.received()).toBe("first:a");
});

it("a retargeted proxy ends its connections and leads to the other server", async () => {
  const { proxy, enter } = await proxied();
  const old = await enter();
  proxy.retarget(await echo("second"));
  await expect.poll(() => old.socket.destroyed).toBe(true);
  const young = await enter();
  young.socket.write("a");
  await expect.poll(young.received).toBe("second:a");
});

it("bytes that a stall held back arrive when it ends", async () => {
  const { proxy, enter } = await proxied();
  proxy.stall();
  const { socket, received } = await enter();
  socket.write("a");
  await sleep(50);
  expect(received()).toBe("");
  proxy.resume();
  await expect.poll(received).toBe("first:a");
});
