// The story by the typed client, which speaks Connect. LATCHKEY_CREDENTIAL is a key of the workspace.
import { createLatchkeyClient, isLatchkeyError } from "latchkey/client";
import { VerificationCode } from "latchkey/gen/latchkey/v1/keys_service_pb.js";

const { LATCHKEY_URL: url = "http://127.0.0.1:8080", LATCHKEY_CREDENTIAL: credential = "" } = process.env;
const { identities, keys } = createLatchkeyClient({ url, key: credential });

const { identityId } = await identities.createIdentity({ externalId: `user_${crypto.randomUUID()}` });
tell(`created identity ${identityId}`);

const owner = { case: "identityId", value: identityId } as const;
const { key, keyId } = await keys.createKey({ name: "example", owner }); // the key is shown this once
tell(`created key ${keyId}`);

const before = await keys.verifyKey({ key });
tell(`verified: ${VerificationCode[before.code]}`);

await keys.updateKey({ keyId, enabled: false });
const after = await keys.verifyKey({ key });
tell(`verified: ${VerificationCode[after.code]}`);

try {
  await createLatchkeyClient({ url, key }).keys.listKeys({});
} catch (error) {
  // The compiler knows every code: a misspelt one is an error here.
  if (!isLatchkeyError(error, "key_disabled")) throw error;
  tell(`refused: ${error.type}`);
}

function tell(line: string): void {
  process.stdout.write(`${line}\n`);
}
