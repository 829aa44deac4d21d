// The example with the client for TypeScript. LATCHKEY_CREDENTIAL is a key of the workspace.
import { createClient, isLatchkeyError } from "@latchkey/client";

const { LATCHKEY_URL: url = "http://127.0.0.1:8080", LATCHKEY_CREDENTIAL: credential = "" } = process.env;
const { identities, keys } = createClient({ url, key: credential });

const externalId = `user_${crypto.randomUUID()}`;
const { identityId } = await identities.createIdentity({ externalId });
print(`created identity ${identityId}`);

const { key, keyId } = await keys.createKey({ name: "example", externalId }); // the key is returned only here
print(`created key ${keyId}`);

const before = await keys.verifyKey({ key });
print(`verified: ${before.code}`);

await keys.updateKey({ keyId, enabled: false });
const after = await keys.verifyKey({ key });
print(`verified: ${after.code}`);

try {
  await createClient({ url, key }).keys.listKeys();
} catch (error) {
  // The compiler knows every error code, so a misspelt one does not compile.
  if (!isLatchkeyError(error, "key_disabled")) throw error;
  print(`refused: ${error.type}`);
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
