import dns from "node:dns";
import { once } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import { connect } from "node:net";
import { expect, it, onTestFinished, vi } from "vitest";
import { openTestApp } from "../../support/harness.js";

const name = "several-addresses.test";
const addresses = ["127.0.0.1", "127.0.0.2"];

it("where HOST has several addresses, every port is at the first and at no other", async () => {
  resolveByName();
  const app = await openTestApp({ host: name, metricsPort: 0 });
  onTestFinished(() => app.close());
  const ports = [app.httpUrl, `http://${app.grpcAddress}`, app.metricsUrl].map((url) =>
    Number(new URL(url ?? "").port),
  );
  for (const port of ports) {
    expect(await Promise.all(addresses.map((address) => isOpen(address, port)))).toEqual([true, false]);
  }
});

/** Names are looked up in both of Node's ways; all but ours as ever. */
function resolveByName(): void {
  const all = addresses.map((address) => ({ address, family: 4 }));
  const [first] = all;
  const { lookup } = dns;
  const { lookup: promised } = dns.promises;
  const mocks = [
    vi.spyOn(dns, "lookup").mockImplementation(((host: string, ...given: [object, (...told: unknown[]) => void]) => {
      if (host !== name) return (lookup as (...given: unknown[]) => void)(host, ...given);
      const [options, done = options as (...told: unknown[]) => void] = given;
      if ("all" in options && options.all) done(null, all);
      else done(null, first?.address, first?.family);
    }) as typeof dns.lookup),
    vi.spyOn(dns.promises, "lookup").mockImplementation((async (host: string, options?: { all?: boolean }) => {
      if (host !== name) return promised(host, options ?? {});
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
