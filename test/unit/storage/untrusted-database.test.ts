import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { type SecureContextOptions, TLSSocket } from "node:tls";
import { expect, it, onTestFinished } from "vitest";
import { ErrorCode } from "../../../gen/latchkey/v1/errors_pb.js";
import { toApiError } from "../../../src/rpc/pipeline.js";
import { connectPostgres, poolSettings } from "../../../src/storage/postgres/connection.js";
import { classifyError } from "../../../src/storage/postgres/errors.js";
import { createAuthority } from "../../support/certificate-authority.js";

const unavailable = {
  code: ErrorCode.APPLICATION_SERVICE_UNAVAILABLE,
  message: "The service cannot establish a TLS connection to its database. Retry after the delay in `Retry-After`.",
};

const authority = await createAuthority("An authority that this process does not trust");
const issued = await authority.issue();

it.each<[string, SecureContextOptions]>([
  ["a certificate of an unknown authority", issued],
  ["a chain with the certificate of that authority", { ...issued, cert: `${issued.cert}\n${authority.cert}` }],
  ["no common version of TLS", { ...issued, maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" }],
])("a statement fails as unavailable, and the cause is named, if its database has %s", async (_, options) => {
  const error = await runStatement(options);
  expect(toApiError(error)).toMatchObject(unavailable);
  expect(classifyError(error), "it ends only when an operator acts").toMatchObject({ persistent: true });
});

it.each(["CERT_HAS_EXPIRED", "DEPTH_ZERO_SELF_SIGNED_CERT", "HOSTNAME_MISMATCH", "ERR_TLS_CERT_ALTNAME_INVALID"])(
  "so does the error %s",
  (code) => {
    expect(toApiError(Object.assign(new Error("made up"), { code }))).toMatchObject(unavailable);
  },
);

/** The error of a statement for a server with these settings of TLS. */
async function runStatement(options: SecureContextOptions): Promise<unknown> {
  const server = createServer((socket) => {
    socket
      .on("error", () => {})
      .once("data", () => {
        socket.write("S");
        new TLSSocket(socket, { isServer: true, ...options }).on("error", () => {});
      });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const url = `postgres://user:password@127.0.0.1:${port}/database?sslmode=verify-full`;
  const pool = connectPostgres(url, { ...poolSettings, connections: 1 });
  onTestFinished(async () => {
    await pool.end({ timeout: 0 });
    server.close();
  });
  return pool`select`.then(
    () => expect.unreachable("the service connected"),
    (error) => error,
  );
}
