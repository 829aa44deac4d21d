import { describe, expect, onTestFinished, test } from "vitest";
import { latchkey } from "../cli/command-line.js";
import { createAuthority, type Pair, writeFiles } from "../tls/authority.js";
import { connectTls } from "../tls/callers.js";
import { leftOf, until } from "./processes.js";
import { ending, expectReadableFailure, launch, makePlace, paste, start, stop } from "./service.js";

describe("with TLS_CERT_FILE and TLS_KEY_FILE", () => {
  test("the printed commands and the command line work, and every worker renews its certificates", async () => {
    const authority = await createAuthority();
    const files = filesOf(await authority.issue(), authority.cert);
    const place = makePlace();
    const set = { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile, WORKERS: "2" };
    const service = await start(place, { set });
    expect(service.httpUrl).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    expect(service.commands).toHaveLength(2);
    for (const command of service.commands) expect((await paste(command, place)).stdout).toMatch(/"first key"/);

    const { DATA_DIR } = place.environment;
    const trusting = { LATCHKEY_ADDRESS: service.grpcAddress, LATCHKEY_CA_FILE: files.caFile, DATA_DIR };
    const listed = await latchkey(["key", "list"], trusting);
    expect(listed).toMatchObject({ exitCode: 0, stderr: "", stdout: expect.stringMatching(/first key/) });
    const strange = { ...trusting, LATCHKEY_ADDRESS: `https://${service.grpcAddress}`, LATCHKEY_CA_FILE: "" };
    expect((await latchkey(["key", "list"], strange)).stderr).toMatch(/^error: .*certificate/);

    const serials = async () => {
      const all = Array.from({ length: 4 }, async (_, index) => {
        const socket = await connectTls(index % 2 ? service.httpUrl : service.grpcAddress, { ca: authority.cert });
        const { serialNumber } = socket.getPeerCertificate();
        socket.destroy();
        return serialNumber;
      });
      return new Set(await Promise.all(all));
    };
    const [before] = await serials();
    files.write(await authority.issue());
    await until("both workers have said so", () => service.stderr().match(/were renewed/g)?.length === 2 || undefined);
    const after = await serials();
    expect(after.size, "of all workers, on both ports").toBe(1);
    expect(after).not.toContain(before);
    expect(await stop(service)).toMatchObject({ code: 0 });
  }, 60_000);

  test("a mistake in them is told in a sentence before anything is started", async () => {
    const authority = await createAuthority();
    const { cert } = await authority.issue();
    const { key } = await authority.issue();
    const files = filesOf({ cert, key }, authority.cert);
    const place = makePlace();
    const failed = launch(place, { set: { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile } });
    expectReadableFailure(await ending(failed), "TLS_KEY_FILE", "TLS_CERT_FILE", files.keyFile);
    expect(await leftOf([], place.folder)).toEqual([]);
  });
});

function filesOf(pair: Pair, ca: string) {
  const files = writeFiles(pair, ca);
  onTestFinished(files.remove);
  return files;
}
