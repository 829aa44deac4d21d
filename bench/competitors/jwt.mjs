// Verifies JWTs with jose, as an API without a central service would. A JWT cannot be revoked before it expires.
import { createServer } from "node:http";
import { setImmediate as nextTurn } from "node:timers/promises";
import { generateKeyPair, jwtVerify, SignJWT } from "jose";

const { ALGORITHM = "ES256" } = process.env;
const { publicKey, privateKey } = await generateKeyPair(ALGORITHM);
const tokens = await Promise.all(
  Array.from({ length: 100 }, (_, number) =>
    new SignJWT({ permissions: ["documents.read", "documents.write"], team: 7 })
      .setProtectedHeader({ alg: ALGORITHM })
      .setSubject(`user_${number}`)
      .setExpirationTime("1h")
      .sign(privateKey),
  ),
);

async function run(seconds) {
  const begin = performance.now();
  let calls = 0;
  while (performance.now() - begin < seconds * 1_000) {
    for (let call = 0; call < 100; call++, calls++) {
      const { payload } = await jwtVerify(tokens[calls % tokens.length], publicKey, { algorithms: [ALGORITHM] });
      if (!payload.permissions.includes("documents.read")) throw new Error("the permission is missing");
    }
    await nextTurn();
  }
  return { calls, seconds: (performance.now() - begin) / 1_000 };
}

const server = createServer(async (request, response) => {
  const { searchParams } = new URL(request.url, "http://localhost");
  response.end(JSON.stringify(await run(Number(searchParams.get("seconds")))));
});
server.listen(0, "127.0.0.1", () => process.stdout.write(`ready on 127.0.0.1:${server.address().port}\n`));
