import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { UserError } from "../errors.js";
import type { Log } from "../observe/log.js";

/** Where certificates are read from, in PEM form. */
export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
  /** Who signs the certificates of clients; undefined: clients need none. */
  readonly clientCaFile: string | undefined;
}

/** What the ports present, and which clients they let in. */
export interface Certificates {
  /** What to present at this moment. */
  readonly current: SecureContextOptions;
  /** For the making of a server: whether its clients need certificates. That does not change. */
  readonly clients: { readonly requestCert: boolean; readonly rejectUnauthorized: boolean };
  /** Calls with what is to be presented to new connections from now on. */
  onChange(listener: (renewed: SecureContextOptions) => void): void;
  close(): void;
}

/**
 * Of TLS 1.2 only what has forward secrecy and authenticated encryption: whoever records a connection and learns the key of
 * the certificate later must not be able to read it. Node's own list has RSA key exchange and CBC, too.
 */
const ciphers = [
  ...["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"],
  ...["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"].flatMap((cipher) => [
    `ECDHE-ECDSA-${cipher}`,
    `ECDHE-RSA-${cipher}`,
  ]),
].join(":");

/** How often the files are looked at. */
const lookEveryMs = 2_000;

/**
 * Reads the certificates, and reads them again when the files change. They are compared by what is in them, again and
 * again: notices of the file system get lost where a whole folder is exchanged by a symbolic link, as Kubernetes does,
 * and on network drives. By hand, because grpc-js's own watcher refuses every connection while a file is broken.
 */
export async function openCertificates(files: CertificateFiles, log: Log): Promise<Certificates> {
  let current = await readCertificates(files);
  let complaint = "";
  const listeners: ((renewed: SecureContextOptions) => void)[] = [];
  const closed = new AbortController();

  async function look(): Promise<void> {
    const found = await readCertificates(files);
    complaint = "";
    if (isSame(found, current)) return;
    current = found;
    for (const tell of listeners) tell(found);
    log.info({ validTo: new X509Certificate(found.cert).validTo }, "the certificates were renewed");
  }

  async function keepLooking(): Promise<void> {
    for (;;) {
      await sleep(lookEveryMs, undefined, { ref: false });
      if (closed.signal.aborted) return;
      await look().catch(({ message }: Error) => {
        if (message !== complaint)
          log.error({ reason: message }, "the new certificates cannot be used; the old ones stay");
        complaint = message;
      });
    }
  }

  void keepLooking();
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

/** What is in the files, once it is known that a server can use it; or what is wrong with it, by the variable's name. */
export async function readCertificates({ certFile, keyFile, clientCaFile }: CertificateFiles) {
  const cert = await read("TLS_CERT_FILE", certFile);
  const key = await read("TLS_KEY_FILE", keyFile);
  const ca = clientCaFile === undefined ? undefined : await read("TLS_CLIENT_CA_FILE", clientCaFile);

  const certificate = parsed("TLS_CERT_FILE", certFile, "a certificate in PEM form", () => new X509Certificate(cert));
  const privateKey = parsed("TLS_KEY_FILE", keyFile, "a private key in PEM form, without a passphrase", () =>
    createPrivateKey(key),
  );
  if (ca) parsed("TLS_CLIENT_CA_FILE", clientCaFile, "certificates in PEM form", () => new X509Certificate(ca));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new UserError(`TLS_KEY_FILE must be the key of the certificate in TLS_CERT_FILE, and ${keyFile} is not.`);
  }
  const context = { cert, key, ca, minVersion: "TLSv1.2", ciphers } as const;
  parsed("TLS_CERT_FILE", certFile, "a certificate that a TLS server can use", () => createSecureContext(context));
  return context;
}

async function read(variable: string, file: string): Promise<Buffer> {
  return readFile(file).catch((cause: Error) => {
    throw new UserError(`${variable} must be a file that can be read, and ${file} is not: ${cause.message}.`, {
      cause,
    });
  });
}

function parsed<T>(variable: string, file: string | undefined, expected: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw new UserError(`${variable} must hold ${expected}, and ${file} does not.`, { cause });
  }
}

type Contents = Awaited<ReturnType<typeof readCertificates>>;

function isSame(one: Contents, other: Contents): boolean {
  return one.cert.equals(other.cert) && one.key.equals(other.key) && one.ca?.equals(other.ca ?? empty) !== false;
}

const empty = Buffer.alloc(0);
