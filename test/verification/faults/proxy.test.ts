import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { openProxy } from "../../support/proxy.js";

/** An echo server that prefixes each text with its name. */
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
  const openClient = async () => {
    const socket = connect(Number(new URL(proxy.url).port), "127.0.0.1").setEncoding("utf8");
    socket.on("error", () => {});
    let received = "";
    socket.on("data", (text) => {
      received += text;
    });
    await once(socket, "connect");
    return { socket, received: () => received };
  };
  return { proxy, openClient };
}

it("delayed bytes arrive late and in order, also when the delay ends meanwhile", async () => {
  const { proxy, openClient } = await proxied();
  const { socket, received } = await openClient();
  proxy.delay(100);
  socket.write("a");
  await sleep(60);
  expect(received()).toBe("");
  proxy.delay(0);
  socket.write("b");
  await expect.poll(received).toMatch(/^first:a(first:)?b$/);
});

it("a blackholed connection never delivers bytes again, while new connections work", async () => {
  const { proxy, openClient } = await proxied();
  const old = await openClient();
  old.socket.write("a");
  await expect.poll(old.received).toBe("first:a");
  proxy.blackhole();
  old.socket.write("b");
  const fresh = await openClient();
  fresh.socket.write("c");
  await expect.poll(fresh.received).toBe("first:c");
  proxy.resume();
  await sleep(50);
  expect(old.received()).toBe("first:a");
});

it("a retargeted proxy closes its connections and connects new ones to the other server", async () => {
  const { proxy, openClient } = await proxied();
  const old = await openClient();
  proxy.retarget(await echo("second"));
  await expect.poll(() => old.socket.destroyed).toBe(true);
  const fresh = await openClient();
  fresh.socket.write("a");
  await expect.poll(fresh.received).toBe("second:a");
});

it("bytes sent during a stall arrive when it ends", async () => {
  const { proxy, openClient } = await proxied();
  proxy.stall();
  const { socket, received } = await openClient();
  socket.write("a");
  await sleep(50);
  expect(received()).toBe("");
  proxy.resume();
  await expect.poll(received).toBe("first:a");
});
