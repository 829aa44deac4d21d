import { createHash, randomBytes } from "node:crypto";
import type { ClientHttp2Stream } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { VerificationCode } from "../../../../gen/latchkey/v1/keys_service_pb.js";
import { DelegateRequestSchema } from "../../../../gen/latchkey/v1/verifier_service_pb.js";
import { openVerifier } from "../../../../src/verifier/verifier.js";
import { grpcFrame, grpcStatusWithin, openStream } from "../../../support/clients/grpc-streams.js";
import { type Attack, outcomeOf } from "../attack.js";
import { type AttackContext, openAttackSession } from "../site.js";
import type { Target, Tenant } from "../target.js";
import { measureAttack } from "./http-memory.js";

const delegate = "/latchkey.v1.VerifierService/Delegate";

type Message = NonNullable<MessageInitShape<typeof DelegateRequestSchema>["message"]>;

const framed = (message: Message) =>
  grpcFrame(Buffer.from(toBinary(DelegateRequestSchema, create(DelegateRequestSchema, { message }))));

const ping = (number: number) => framed({ case: "ping", value: { number } });

const hashOf = (secret: string) => createHash("sha256").update(secret).digest();

/** Writes messages as fast as the service reads them, until the time is over. Returns how many. */
async function flood(stream: ClientHttp2Stream | undefined, until: number, next: (count: number) => Buffer) {
  let sent = 0;
  while (stream && !stream.destroyed && performance.now() < until) {
    const batch = Buffer.concat(Array.from({ length: 200 }, () => next(++sent)));
    stream.write(batch);
    while (stream.writableLength > 100_000 && !stream.destroyed && performance.now() < until) await sleep(5);
    await sleep(1);
  }
  return sent;
}

/** The library of another tenant, which verifies a key locally during the attack. */
async function openOther(context: AttackContext, target: Target) {
  const { key } = await target.createTenant();
  const verifier = await openVerifier({ address: `http://127.0.0.1:${target.grpcPort}`, key });
  context.addCleanup(() => verifier.close());
  let failed = 0;
  const verifying = setInterval(() => {
    Promise.resolve(verifier.verify(key)).then(
      ({ valid }) => {
        failed += valid ? 0 : 1;
      },
      () => {
        failed += 1;
      },
    );
  }, 10);
  return () => {
    clearInterval(verifying);
    const { local, remote } = verifier.stats;
    const isServed = failed < (local + remote) / 2; // those that are not local may be shed
    return { isServed, text: `another verifier: ${local} local, ${remote} remote, ${failed} failed` };
  };
}

export const verifierMessages: Attack = {
  name: "verifier-messages",
  title: "a tenant floods its verifier streams with pings",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const finish = await openOther(context, target);
    const { withstood, observed } = await measureAttack(context, target, async () => {
      const until = performance.now() + 8_000;
      const streams = 20;
      let received = 0;
      const counts = await Promise.all(
        Array.from({ length: streams }, async () => {
          const stream = openStream(await openAttackSession(context, target), delegate, key);
          stream?.on("data", (bytes: Buffer) => {
            received += bytes.length;
          });
          return flood(stream, until, ping);
        }),
      );
      const sent = counts.reduce((sum, count) => sum + count, 0);
      return `${sent} pings on ${streams} streams, ${(received / 2 ** 20).toFixed(1)} MiB of responses`;
    });
    const { isServed, text } = finish();
    const served = { "other verifiers served": isServed };
    return withstood ? outcomeOf(served, `${observed}; ${text}`) : { withstood, observed: `${observed}; ${text}` };
  },
};

export const verifierLookups: Attack = {
  name: "verifier-lookups",
  title: "a tenant floods its verifier streams with lookups and reports of random keys",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const finish = await openOther(context, target);
    const report = () => {
      const keys = Array.from({ length: 500 }, () => ({
        sha256: randomBytes(32),
        code: VerificationCode.VALID,
        count: 2 ** 32 - 1,
        lastUsedMsAgo: 2 ** 32 - 1,
      }));
      return framed({ case: "uses", value: { keys } });
    };
    const reports = Array.from({ length: 20 }, report);
    const { withstood, observed } = await measureAttack(context, target, async () => {
      const until = performance.now() + 8_000;
      const counts = await Promise.all(
        Array.from({ length: 20 }, async (_, index) => {
          const stream = openStream(await openAttackSession(context, target), delegate, key);
          stream?.resume();
          return flood(stream, until, (id) =>
            index % 5 === 0
              ? (reports[id % reports.length] as Buffer)
              : framed({ case: "resolve", value: { id, sha256: randomBytes(32) } }),
          );
        }),
      );
      return `${counts.reduce((sum, count) => sum + count, 0)} messages on 20 streams`;
    });
    const { isServed, text } = finish();
    const served = { "other verifiers served": isServed };
    return withstood ? outcomeOf(served, `${observed}; ${text}`) : { withstood, observed: `${observed}; ${text}` };
  },
};

export const unreadVerifierStreams: Attack = {
  name: "verifier-unread",
  title: "a tenant requests large keys on many streams and never reads the responses",
  async run(context) {
    const target = await context.start();
    const tenant = await target.createTenant();
    const secrets = await createLargeKeys(target, tenant, 50);
    return measureAttack(context, target, async () => {
      let open = 0;
      for (let connection = 0; connection < 10; connection++) {
        const session = await openAttackSession(context, target, { initialWindowSize: 0 });
        for (let call = 0; call < 100; call++) {
          const stream = openStream(session, delegate, tenant.key);
          if (stream === undefined) continue;
          open += 1;
          stream.once("close", () => {
            open -= 1;
          });
          const resolves = secrets.map((secret, id) =>
            framed({ case: "resolve", value: { id, sha256: hashOf(secret) } }),
          );
          stream.write(Buffer.concat([ping(1), ...resolves]));
        }
        await sleep(100);
      }
      for (let change = 0; change < 10; change++) await target.call("keys.createKey", tenant.key, {});
      await sleep(5_000);
      return `1000 streams begun, ${open} open, each with ${secrets.length} keys of 32 KB`;
    });
  },
};

async function createLargeKeys(target: Target, { key }: Tenant, count: number): Promise<string[]> {
  const meta = { text: "x".repeat(16_000) };
  await target.call("identities.createIdentity", key, { externalId: "heavy", meta });
  const secrets: string[] = [];
  for (let index = 0; index < count; index++) {
    const created = await target.call("keys.createKey", key, { externalId: "heavy", meta });
    secrets.push(created.data.key);
  }
  return secrets;
}

export const manyVerifierStreams: Attack = {
  name: "verifier-streams",
  title:
    "a tenant opens thousands of streams: silent, half-closed, with half a message, and with one that is too large",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const half = ping(1).subarray(0, 4);
    const large = grpcFrame(Buffer.alloc(200_000));
    let begun = 0;
    const outcome = await measureAttack(context, target, async () => {
      for (let connection = 0; connection < 20; connection++) {
        const session = await openAttackSession(context, target);
        const kind = connection % 4;
        // Large messages that the service does not read would block the connection itself.
        for (let call = 0; call < (kind === 3 ? 10 : 240); call++) {
          const stream = openStream(session, delegate, key)?.resume();
          begun += 1;
          if (kind === 1) stream?.end();
          if (kind === 2) stream?.write(half);
          if (kind === 3) stream?.write(large);
        }
        await sleep(200);
      }
      await sleep(4_000);
      return `${begun} streams begun, ${await target.metric("verifier_streams")} open`;
    });
    const open = await target.metric("verifier_streams");
    const { withstood, observed } = outcome;
    return withstood ? outcomeOf({ "streams limited": open <= 1_000 }, observed) : outcome;
  },
};

export const verifierConnections: Attack = {
  name: "verifier-connections",
  title: "verifier streams of one tenant on every connection of the port block all other clients",
  async run(context) {
    const maxConnections = 50;
    const target = await context.start({ env: { MAX_CONNECTIONS: `${maxConnections}` } });
    const [hostile, other] = [await target.createTenant(), await target.createTenant()];
    for (let connection = 0; connection < maxConnections; connection++) {
      const stream = openStream(await openAttackSession(context, target), delegate, hostile.key)?.resume();
      stream?.write(ping(1));
    }
    await sleep(500);
    const stream = openStream(await openAttackSession(context, target), "/latchkey.v1.KeysService/ListKeys", other.key);
    stream?.end(grpcFrame(Buffer.alloc(0)));
    const status = stream ? await grpcStatusWithin(stream) : -1;
    return outcomeOf(
      { "another client served": status === 0 },
      `${maxConnections} streams; status of a call: ${status}`,
    );
  },
};
