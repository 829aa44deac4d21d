import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { CreateKeyRequestSchema } from "../../../../gen/latchkey/v1/keys_service_pb.js";
import { grpcFrame, grpcStatusWithin, openStream } from "../../../support/clients/grpc-streams.js";
import { connectSocket, jsonHeaders, readUntilQuiet, requestText, statusOf } from "../../../support/clients/sockets.js";
import { type Attack, outcomeOf } from "../attack.js";
import { type AttackContext, openAttackSession } from "../site.js";
import { operatorKey, type Target, type Tenant } from "../target.js";

/** A stolen key that is about to be revoked. */
interface StolenKey {
  readonly keyId: string;
  readonly key: string;
}

type Revoke = (target: Target, tenant: Tenant, stolen: StolenKey) => Promise<{ status: number }>;

const revocations: Readonly<Record<string, Revoke>> = {
  deleteKey: ({ call }, { key }, { keyId }) => call("keys.deleteKey", key, { keyId }),
  "updateKey enabled=false": ({ call }, { key }, { keyId }) => call("keys.updateKey", key, { keyId, enabled: false }),
  "updateKey scopes=[]": ({ call }, { key }, { keyId }) => call("keys.updateKey", key, { keyId, scopes: [] }),
  "updateKey expires": ({ call }, { key }, { keyId }) =>
    call("keys.updateKey", key, { keyId, expires: Date.now() + 100 }),
  "rerollKey 0": ({ call }, { key }, { keyId }) => call("keys.rerollKey", key, { keyId, expiration: 0 }),
  disableWorkspace: ({ call }, { workspaceId }) =>
    call("workspaces.disableWorkspace", operatorKey, { workspaceId, reason: "SUSPICIOUS_ACTIVITY" }),
};

/**
 * Begins a call that creates a key with all scopes. The returned function sends the body and returns whether it
 * succeeded.
 */
type Begin = (context: AttackContext, target: Target, key: string) => Promise<() => Promise<boolean>>;

const body = JSON.stringify({ name: "late", scopes: ["*"] });

function overHttp(path: string): Begin {
  return async (_site, { httpUrl }, key) => {
    const socket = await connectSocket(httpUrl);
    socket.write(requestText("POST", path, { ...jsonHeaders(key), "content-length": body.length }));
    return async () => {
      socket.write(body);
      return statusOf(await readUntilQuiet(socket)) === 200;
    };
  };
}

const protocols: Readonly<Record<string, Begin>> = {
  http: overHttp("/v2/keys.createKey"),
  connect: overHttp("/latchkey.v1.KeysService/CreateKey"),
  async grpc(context, target, key) {
    const session = await openAttackSession(context, target);
    const stream = openStream(session, "/latchkey.v1.KeysService/CreateKey", key);
    if (stream === undefined) throw new Error("the gRPC port accepts no call");
    const message = toBinary(CreateKeyRequestSchema, create(CreateKeyRequestSchema, { name: "late", scopes: ["*"] }));
    return async () => {
      stream.end(grpcFrame(Buffer.from(message)));
      return (await grpcStatusWithin(stream)) === 0;
    };
  },
};

/** Long enough for the headers to arrive, also on a busy machine. */
const arrivalMs = 200;

export const lateBody: Attack = {
  name: "late-body",
  title: "a revoked key makes a change by sending the request body late",
  async run(context) {
    const target = await context.start();
    const sql = target.sql();
    const effects: string[] = [];
    const refusedInTime: string[] = [];
    let tried = 0;
    for (const [protocol, begin] of Object.entries(protocols)) {
      const { key } = await target.createTenant();
      const finishInTime = await begin(context, target, key);
      await sleep(arrivalMs);
      if (!(await finishInTime())) refusedInTime.push(protocol);
      for (const [name, revoke] of Object.entries(revocations)) {
        const tenant = await target.createTenant();
        const { data: stolen } = await target.call("keys.createKey", tenant.key, { scopes: ["*"] });
        const finish = await begin(context, target, stolen.key);
        await sleep(arrivalMs);
        const { status } = await revoke(target, tenant, stolen);
        if (status !== 200) throw new Error(`${name}: ${status}`);
        const accepted = await finish();
        const [row] = await sql`
          select count(*)::int as created from keys where workspace_id = ${tenant.workspaceId} and name = 'late'`;
        if (accepted || row?.["created"] !== 0) effects.push(`${name} over ${protocol}`);
        tried += 1;
      }
    }
    const created = effects.length > 0 ? `; a key was created after ${effects.join(", ")}` : "";
    return outcomeOf(
      { "all refused": effects.length === 0, "accepted without a revocation": refusedInTime.length === 0 },
      `${tried - effects.length} of ${tried} refused${created}`,
    );
  },
};

export const passedDeadline: Attack = {
  name: "passed-deadline",
  title: "a call takes effect although its deadline has passed",
  async run(context) {
    const target = await context.start();
    const { key, workspaceId } = await target.createTenant();
    const calls = 20;
    const message = toBinary(CreateKeyRequestSchema, create(CreateKeyRequestSchema, { name: "late" }));
    /** Sends a request over Connect and over gRPC. */
    const createTwo = async (deadlines: { readonly connect: string; readonly grpc: string }) => {
      await fetch(`${target.httpUrl}/latchkey.v1.KeysService/CreateKey`, {
        method: "POST",
        headers: { ...jsonHeaders(key), "connect-timeout-ms": deadlines.connect },
        body,
      }).then((response) => response.text());
      const session = await openAttackSession(context, target);
      const stream = openStream(session, "/latchkey.v1.KeysService/CreateKey", key, { "grpc-timeout": deadlines.grpc });
      stream?.end(grpcFrame(Buffer.from(message)));
      if (stream) await Promise.race([once(stream.resume(), "close"), sleep(10_000)]);
      session.destroy();
    };
    const countCreated = async () => {
      const [row] = await target.sql()`
        select count(*)::int as created from keys where workspace_id = ${workspaceId} and name = 'late'`;
      return row?.["created"];
    };
    for (let call = 0; call < calls; call++) await createTwo({ connect: "0", grpc: "0m" });
    const late = await countCreated();
    await createTwo({ connect: "10000", grpc: "10S" });
    return outcomeOf(
      { "no change made": late === 0, "the same requests in time make it": (await countCreated()) === late + 2 },
      `${late} keys created by ${2 * calls} calls after their deadline`,
    );
  },
};
