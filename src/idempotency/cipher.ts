import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from "node:crypto";

/** Derives the ids of one credential's idempotency records, and encrypts them. No other credential can read them. */
export interface RecordCipher {
  /** The record id of an idempotency key: deterministic, and it reveals nothing about the key. */
  recordId(idempotencyKey: string): Buffer;
  /** Encrypts bytes. They are authenticated together with the record id. */
  encrypt(recordId: Buffer, bytes: Uint8Array): Buffer;
  /** Decrypts bytes that were encrypted with this record id. Throws for all others. */
  decrypt(recordId: Buffer, encrypted: Buffer): Buffer;
}

const keyLength = 32;
const nonceLength = 12;
const tagLength = 16;

/**
 * Creates the cipher of a credential. The service stores no credentials, so it cannot decrypt the stored records by
 * itself.
 */
export function createRecordCipher(credential: string): RecordCipher {
  const keys = Buffer.from(hkdfSync("sha256", credential, "", "latchkey idempotency records", 2 * keyLength));
  const hmacKey = keys.subarray(0, keyLength);
  const encryptionKey = keys.subarray(keyLength);

  return {
    recordId: (idempotencyKey) => createHmac("sha256", hmacKey).update(idempotencyKey).digest(),

    encrypt(recordId, bytes) {
      const nonce = randomBytes(nonceLength);
      const cipher = createCipheriv("aes-256-gcm", encryptionKey, nonce, { authTagLength: tagLength }).setAAD(recordId);
      const ciphertext = Buffer.concat([cipher.update(bytes), cipher.final()]);
      return Buffer.concat([nonce, cipher.getAuthTag(), ciphertext]);
    },

    decrypt(recordId, encrypted) {
      const nonce = encrypted.subarray(0, nonceLength);
      const tag = encrypted.subarray(nonceLength, nonceLength + tagLength);
      const decipher = createDecipheriv("aes-256-gcm", encryptionKey, nonce, { authTagLength: tagLength });
      decipher.setAAD(recordId).setAuthTag(tag);
      return Buffer.concat([decipher.update(encrypted.subarray(nonceLength + tagLength)), decipher.final()]);
    },
  };
}
