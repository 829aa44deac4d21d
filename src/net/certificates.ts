import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { UserError } from "../errors.js";
import type { Log } from "../observe/log.js";
import { createOutageLog } from "../observe/outage-log.js";

/** The files of the certificates, in PEM format. */
export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
  /** The CAs of client certificates; undefined: clients need no certificate. */
  readonly clientCaFile: string | undefined;
}

/** The TLS settings of the ports. */
export interface Certificates {
  /** The settings for new connections. */
  readonly current: SecureContextOptions;
  /** Whether clients need certificates. Set when a server is created; it does not change later. */
  readonly clients: { readonly requestCert: boolean; readonly rejectUnauthorized: boolean };
  /** Registers a listener that gets the new settings after a reload. */
  onChange(listener: (renewed: SecureContextOptions) => void): void;
  close(): void;
}

/**
 * For TLS 1.2, only ciphers with forward secrecy and authenticated encryption. An attacker who records a connection and
 * gets the certificate's key later must not be able to decrypt it. Node's default list also has RSA key exchange and
 * CBC.
 */
const ciphers = [
  ...["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"],
  ...["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"].flatMap((cipher) => [
    `ECDHE-ECDSA-${cipher}`,
    `ECDHE-RSA-${cipher}`,
  ]),
].join(":");

/** The interval at which the files are checked for changes. */
const reloadIntervalMs = 2_000;

/**
 * Reads the certificates, and reloads them when the files change. It polls the content of the files, because file
 * system notifications get lost on network drives, and where a symbolic link replaces a whole folder, as in Kubernetes.
 * Written by hand, because grpc-js's own watcher refuses every connection while a file is invalid.
 */
export async function openCertificates(files: CertificateFiles, log: Log): Promise<Certificates> {
  let current = await readCertificates(files);
  const outage = createOutageLog(log, "error");
  const listeners: ((renewed: SecureContextOptions) => void)[] = [];
  const closed = new AbortController();

  async function reload(): Promise<void> {
    const loaded = await readCertificates(files);
    outage.recovered();
    if (hasSameContent(loaded, current)) return;
    current = loaded;
    for (const listener of listeners) listener(loaded);
    log.info({ validTo: new X509Certificate(loaded.cert).validTo }, "the certificates were renewed");
  }

  async function pollFiles(): Promise<void> {
    for (;;) {
      await sleep(reloadIntervalMs, undefined, { ref: false });
      if (closed.signal.aborted) return;
      await reload().catch(({ message }: Error) => {
        const details = { reason: message };
        outage.failed("the new certificates cannot be used; the old ones remain in use", details, message);
      });
    }
  }

  void pollFiles();
  const needed = files.clientCaFile !== undefined;
  return {
    get current() {
      return current;
    },
    clients: { requestCert: needed, rejectUnauthorized: needed },
    onChange: (listener) => void listeners.push(listener),
    close: () => closed.abort(),
  };
}

/** Reads and validates the files. The error of an invalid file names its variable. */
export async function readCertificates({ certFile, keyFile, clientCaFile }: CertificateFiles) {
  const cert = await read("TLS_CERT_FILE", certFile);
  const key = await read("TLS_KEY_FILE", keyFile);
  const ca = clientCaFile === undefined ? undefined : await read("TLS_CLIENT_CA_FILE", clientCaFile);

  const certificate = parseFile(
    "TLS_CERT_FILE",
    certFile,
    "a certificate in PEM format",
    () => new X509Certificate(cert),
  );
  const privateKey = parseFile("TLS_KEY_FILE", keyFile, "a private key in PEM format, without a passphrase", () =>
    createPrivateKey(key),
  );
  if (ca) parseFile("TLS_CLIENT_CA_FILE", clientCaFile, "certificates in PEM format", () => validateBundle(ca));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new UserError(`TLS_KEY_FILE must be the key of the certificate in TLS_CERT_FILE, and ${keyFile} is not.`);
  }
  const context = { cert, key, ca, minVersion: "TLSv1.2", ciphers } as const;
  parseFile("TLS_CERT_FILE", certFile, "a certificate that a TLS server can use", () => createSecureContext(context));
  return context;
}

async function read(variable: string, file: string): Promise<Buffer> {
  return readFile(file).catch((cause: Error) => {
    throw new UserError(`${variable} must be a readable file, and ${file} is not: ${cause.message}.`, {
      cause,
    });
  });
}

function parseFile<T>(variable: string, file: string | undefined, expected: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw new UserError(`${variable} must contain ${expected}, and ${file} does not.`, { cause });
  }
}

/** Throws unless all certificates of a file are intact. Node reads them only up to the first damaged one, without an error. */
function validateBundle(pem: Buffer): void {
  const blocks = pem
    .toString("latin1")
    .split(/^-----BEGIN /m)
    .slice(1);
  let certificates = 0;
  for (const block of blocks) {
    const [label = ""] = block.split("-----", 1);
    if (!block.includes(`\n-----END ${label}-----`)) throw new Error("a block has no end");
    if (!certificateLabels.has(label)) continue;
    new X509Certificate(`-----BEGIN ${block}`);
    certificates += 1;
  }
  if (certificates === 0) throw new Error("there is no certificate");
}

/** Those that Node accepts. It ignores blocks with others, such as keys. */
const certificateLabels = new Set(["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"]);

type Contents = Awaited<ReturnType<typeof readCertificates>>;

function hasSameContent(one: Contents, other: Contents): boolean {
  return one.cert.equals(other.cert) && one.key.equals(other.key) && one.ca?.equals(other.ca ?? empty) !== false;
}

const empty = Buffer.alloc(0);
