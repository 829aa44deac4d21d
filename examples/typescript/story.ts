// The example with the typed client, which uses Connect. LATCHKEY_CREDENTIAL is a key of the workspace.
import { createLatchkeyClient, isLatchkeyError } from "latchkey/client";
import { VerificationCode } from "latchkey/gen/latchkey/v1/keys_service_pb.js";

const { LATCHKEY_URL: url = "http://127.0.0.1:8080", LATCHKEY_CREDENTIAL: credential = "" } = process.env;
const { identities, keys } = createLatchkeyClient({ url, key: credential });

const { identityId } = await identities.createIdentity({ externalId: `user_${crypto.randomUUID()}` });
print(`created identity ${identityId}`);

const owner = { case: "identityId", value: identityId } as const;
const { key, keyId } = await keys.createKey({ name: "example", owner }); // the key is returned only here
print(`created key ${keyId}`);

const before = await keys.verifyKey({ key });
print(`verified: ${VerificationCode[before.code]}`);

await keys.updateKey({ keyId, enabled: false });
const after = await keys.verifyKey({ key });
print(`verified: ${VerificationCode[after.code]}`);

try {
  await createLatchkeyClient({ url, key }).keys.listKeys({});
} catch (error) {
  // The compiler knows every error code, so a misspelt one does not compile.
  if (!isLatchkeyError(error, "key_disabled")) throw error;
  print(`refused: ${error.type}`);
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
