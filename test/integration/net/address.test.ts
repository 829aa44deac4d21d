import dns from "node:dns";
import { once } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import { connect } from "node:net";
import { expect, it, onTestFinished, vi } from "vitest";
import { openTestApp } from "../../support/harness.js";

const name = "several-addresses.test";
const addresses = ["127.0.0.1", "127.0.0.2"];

it("if HOST has several addresses, every port listens on the first one only", async () => {
  mockLookup();
  const app = await openTestApp({ host: name, metricsPort: 0 });
  onTestFinished(() => app.close());
  const ports = [app.httpUrl, `http://${app.grpcAddress}`, app.metricsUrl].map((url) =>
    Number(new URL(url ?? "").port),
  );
  for (const port of ports) {
    expect(await Promise.all(addresses.map((address) => isOpen(address, port)))).toEqual([true, false]);
  }
});

/** Mocks both lookup APIs of Node for the test's name. Other names resolve as usual. */
function mockLookup(): void {
  const all = addresses.map((address) => ({ address, family: 4 }));
  const [first] = all;
  const { lookup } = dns;
  const { lookup: lookupPromise } = dns.promises;
  const mocks = [
    vi.spyOn(dns, "lookup").mockImplementation(((host: string, ...args: [object, (...result: unknown[]) => void]) => {
      if (host !== name) return (lookup as (...args: unknown[]) => void)(host, ...args);
      const [options, done = options as (...result: unknown[]) => void] = args;
      if ("all" in options && options.all) done(null, all);
      else done(null, first?.address, first?.family);
    }) as typeof dns.lookup),
    vi.spyOn(dns.promises, "lookup").mockImplementation((async (host: string, options?: { all?: boolean }) => {
      if (host !== name) return lookupPromise(host, options ?? {});
      return options?.all ? all : first;
    }) as typeof dns.promises.lookup),
  ];
  syncBuiltinESMExports();
  onTestFinished(() => {
    for (const mock of mocks) mock.mockRestore();
    syncBuiltinESMExports();
  });
}

async function isOpen(address: string, port: number): Promise<boolean> {
  const socket = connect(port, address);
  const opened = await once(socket, "connect").then(
    () => true,
    () => false,
  );
  socket.destroy();
  return opened;
}
