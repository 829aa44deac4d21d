import { mkdtempSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generate } from "selfsigned";

/** A certificate with its key, in PEM format. */
export interface Pair {
  readonly cert: string;
  readonly key: string;
}

/** A CA that issues certificates for this machine's loopback address. */
export interface Authority {
  readonly cert: string;
  issue(): Promise<Pair>;
}

/** Creates a CA. Its certificates are valid for the duration of a test. */
export async function createAuthority(name = "Test CA", keyType: "ec" | "rsa" = "ec"): Promise<Authority> {
  const form = { keyType, algorithm: "sha256" } as const;
  const own = await generate([{ name: "commonName", value: name }], {
    ...form,
    extensions: [
      { name: "basicConstraints", cA: true, critical: true },
      { name: "keyUsage", keyCertSign: true, critical: true },
    ],
  });
  return {
    cert: own.cert,
    async issue() {
      const names = [{ type: 2, value: "localhost" } as const, { type: 7, ip: "127.0.0.1" } as const];
      const { cert, private: key } = await generate([{ name: "commonName", value: "localhost" }], {
        ...form,
        ca: { cert: own.cert, key: own.private },
        extensions: [{ name: "subjectAltName", altNames: names }],
      });
      return { cert, key };
    },
  };
}

/** The files that a service reads its certificates from, in a folder of their own. */
export interface Files {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
  write(pair: Partial<Pair>): void;
  remove(): Promise<void>;
}

/** Writes a certificate and its key, and the CA certificate for client certificates. */
export function writeFiles(pair: Pair, ca: string): Files {
  const folder = mkdtempSync(join(tmpdir(), "latchkey tls "));
  const files = {
    certFile: join(folder, "tls.crt"),
    keyFile: join(folder, "tls.key"),
    caFile: join(folder, "ca.crt"),
    write({ cert, key }: Partial<Pair>) {
      if (cert !== undefined) writeFileSync(files.certFile, cert);
      if (key !== undefined) writeFileSync(files.keyFile, key);
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
  files.write(pair);
  writeFileSync(files.caFile, ca);
  return files;
}
