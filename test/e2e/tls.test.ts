import { describe, expect, onTestFinished, test } from "vitest";
import { latchkey } from "../integration/cli/command-line.js";
import { createAuthority, writeFiles } from "../support/certificate-authority.js";
import { connectTls } from "../support/clients/tls.js";
import { createDatabase } from "../support/harness.js";
import { needsCurl } from "../support/skip.js";
import { leftOf, until } from "./processes.js";
import { ending, expectReadableFailure, launch, makePlace, paste, start } from "./service.js";

describe("with TLS_CERT_FILE and TLS_KEY_FILE", () => {
  test("the printed commands can be pasted", async (context) => {
    needsCurl(context);
    const { variables } = await makeCertificates();
    const place = makePlace();
    const service = await start(place, { set: variables });
    expect(service.httpUrl).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    expect(service.commands).toHaveLength(2);
    for (const command of service.commands) expect((await paste(command, place)).stdout).toMatch(/"first key"/);
  });

  test("the command line works, and every worker renews its certificates", async () => {
    const { authority, files, variables } = await makeCertificates();
    const database = await createDatabase();
    onTestFinished(() => database.drop());
    const set = { ...variables, DATABASE_URL: database.url, OPERATOR_KEY: operatorKey, WORKERS: "2" };
    const service = await start(makePlace(), { set });

    const trusting = {
      LATCHKEY_ADDRESS: service.grpcAddress,
      LATCHKEY_CREDENTIAL: operatorKey,
      LATCHKEY_CA_FILE: files.caFile,
    };
    expect(await latchkey(["workspace", "list"], trusting)).toMatchObject({ exitCode: 0, stderr: "" });
    const strange = { ...trusting, LATCHKEY_ADDRESS: `https://${service.grpcAddress}`, LATCHKEY_CA_FILE: "" };
    expect((await latchkey(["workspace", "list"], strange)).stderr).toMatch(/^error: .*certificate/);

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
  });

  test("a mistake in them is told in a sentence before anything is started", async () => {
    const { authority, files, variables } = await makeCertificates();
    const { key } = await authority.issue();
    files.write({ key }); // of another certificate
    const place = makePlace();
    const failed = launch(place, { set: variables });
    expectReadableFailure(await ending(failed), "TLS_KEY_FILE", "TLS_CERT_FILE", files.keyFile);
    expect(await leftOf([], place.folder)).toEqual([]);
  });
});

const operatorKey = "operator-credential-of-the-start-tests";

/** Who signs, the files with a certificate, and the variables that name them. */
async function makeCertificates() {
  const authority = await createAuthority();
  const files = writeFiles(await authority.issue(), authority.cert);
  onTestFinished(files.remove);
  return { authority, files, variables: { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile } };
}
