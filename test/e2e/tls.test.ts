import { describe, expect, onTestFinished, test } from "vitest";
import { createAuthority, writeFiles } from "../support/certificate-authority.js";
import { connectTls } from "../support/clients/tls.js";
import { createDatabase } from "../support/harness.js";
import { needsCurl } from "../support/skip.js";
import { latchkey } from "./cli/command-line.js";
import { remainingProcesses, until } from "./processes.js";
import { expectUserError, launch, makeSandbox, paste, start, waitForExit } from "./service.js";

describe("with TLS_CERT_FILE and TLS_KEY_FILE", () => {
  test("the printed commands work as pasted", async (context) => {
    needsCurl(context);
    const { variables } = await makeCertificates();
    const sandbox = makeSandbox();
    const service = await start(sandbox, { set: variables });
    expect(service.httpUrl).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    expect(service.commands).toHaveLength(2);
    for (const command of service.commands) expect((await paste(command, sandbox)).stdout).toMatch(/"first key"/);
  });

  test("the command line works, and every worker reloads its certificates", async () => {
    const { authority, files, variables } = await makeCertificates();
    const database = await createDatabase();
    onTestFinished(() => database.drop());
    const set = { ...variables, DATABASE_URL: database.url, OPERATOR_KEY: operatorKey, WORKERS: "2" };
    const service = await start(makeSandbox(), { set });

    const trusted = {
      LATCHKEY_ADDRESS: service.grpcAddress,
      LATCHKEY_CREDENTIAL: operatorKey,
      LATCHKEY_CA_FILE: files.caFile,
    };
    expect(await latchkey(["workspace", "list"], trusted)).toMatchObject({ exitCode: 0, stderr: "" });
    const untrusted = { ...trusted, LATCHKEY_ADDRESS: `https://${service.grpcAddress}`, LATCHKEY_CA_FILE: "" };
    expect((await latchkey(["workspace", "list"], untrusted)).stderr).toMatch(/^error: .*certificate/);

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
    await until(
      "both workers have logged the reload",
      () => service.stderr().match(/were renewed/g)?.length === 2 || undefined,
    );
    const after = await serials();
    expect(after.size, "of all workers, on both ports").toBe(1);
    expect(after).not.toContain(before);
  });

  test("an error in the files is reported readably before anything is started", async () => {
    const { authority, files, variables } = await makeCertificates();
    const { key } = await authority.issue();
    files.write({ key }); // of another certificate
    const sandbox = makeSandbox();
    const failed = launch(sandbox, { set: variables });
    expectUserError(await waitForExit(failed), "TLS_KEY_FILE", "TLS_CERT_FILE", files.keyFile);
    expect(await remainingProcesses([], sandbox.folder)).toEqual([]);
  });
});

const operatorKey = "operator-credential-of-the-start-tests";

/** A CA, the files with a certificate, and the variables that name them. */
async function makeCertificates() {
  const authority = await createAuthority();
  const files = writeFiles(await authority.issue(), authority.cert);
  onTestFinished(files.remove);
  return { authority, files, variables: { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile } };
}
