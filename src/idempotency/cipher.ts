import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from "node:crypto";

/** What one credential can name and read, and nobody else. */
export interface RecordCipher {
  /** The name of a text: the same each time, and nothing can be told from it. */
  recordId(text: string): Buffer;
  /** Closes bytes under a name. */
  encrypt(name: Buffer, bytes: Uint8Array): Buffer;
  /** Opens what was closed under this name; throws for anything else. */
  decrypt(name: Buffer, encrypted: Buffer): Buffer;
}

const keyLength = 32;
const nonceLength = 12;
const tagLength = 16;

/** Makes the seal of a credential. The service stores no credential, so what it stores encrypted it cannot read by itself. */
export function createRecordCipher(credential: string): RecordCipher {
  const keys = Buffer.from(hkdfSync("sha256", credential, "", "latchkey kept answers", 2 * keyLength));
  const nameKey = keys.subarray(0, keyLength);
  const sealKey = keys.subarray(keyLength);

  return {
    recordId: (text) => createHmac("sha256", nameKey).update(text).digest(),

    encrypt(name, bytes) {
      const nonce = randomBytes(nonceLength);
      const cipher = createCipheriv("aes-256-gcm", sealKey, nonce, { authTagLength: tagLength }).setAAD(name);
      const closed = Buffer.concat([cipher.update(bytes), cipher.final()]);
      return Buffer.concat([nonce, cipher.getAuthTag(), closed]);
    },

    decrypt(name, encrypted) {
      const nonce = encrypted.subarray(0, nonceLength);
      const tag = encrypted.subarray(nonceLength, nonceLength + tagLength);
      const decipher = createDecipheriv("aes-256-gcm", sealKey, nonce, { authTagLength: tagLength });
      decipher.setAAD(name).setAuthTag(tag);
      return Buffer.concat([decipher.update(encrypted.subarray(nonceLength + tagLength)), decipher.final()]);
    },
  };
}
