import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { CreateKeyRequestSchema } from "../../../../gen/latchkey/v1/keys_service_pb.js";
import { prefixed } from "../../overload/bare-grpc.js";
import { type Attack, outcomeOf } from "../attack.js";
import { statusOf as grpcStatusOf, openSession, openStream } from "../grpc-client.js";
import type { Site } from "../site.js";
import { jsonHeaders, openSocket, readUntilQuiet, requestText, statusOf } from "../sockets.js";
import { operatorKey, type Target, type Tenant } from "../target.js";

/** A key that is about to be revoked. */
interface Thief {
  readonly keyId: string;
  readonly key: string;
}

type Revoke = (target: Target, tenant: Tenant, thief: Thief) => Promise<{ status: number }>;

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

/** Begins to create a key that may do everything; the returned function sends the rest. True: it was created. */
type Begin = (site: Site, target: Target, key: string) => Promise<() => Promise<boolean>>;

const body = JSON.stringify({ name: "heir", scopes: ["*"] });

function overHttp(path: string): Begin {
  return async (_site, { httpPort }, key) => {
    const socket = await openSocket(httpPort);
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
  async grpc(site, target, key) {
    const session = await openSession(site, target);
    const stream = openStream(session, "/latchkey.v1.KeysService/CreateKey", key);
    if (stream === undefined) throw new Error("the gRPC port takes no call");
    const message = toBinary(CreateKeyRequestSchema, create(CreateKeyRequestSchema, { name: "heir", scopes: ["*"] }));
    return async () => {
      stream.end(prefixed(Buffer.from(message)));
      return (await grpcStatusOf(stream)) === 0;
    };
  },
};

/** Long enough for the headers to arrive, on a busy machine too. */
const arrivalMs = 200;

export const lateBody: Attack = {
  name: "late-body",
  title: "a revoked key acts by a request body that it holds back",
  async run(site) {
    const target = await site.start();
    const sql = target.sql();
    const effects: string[] = [];
    let tried = 0;
    for (const [protocol, begin] of Object.entries(protocols)) {
      for (const [name, revoke] of Object.entries(revocations)) {
        const tenant = await target.createTenant();
        const { data: thief } = await target.call("keys.createKey", tenant.key, { scopes: ["*"] });
        const finish = await begin(site, target, thief.key);
        await sleep(arrivalMs);
        const { status } = await revoke(target, tenant, thief);
        if (status !== 200) throw new Error(`${name}: ${status}`);
        const accepted = await finish();
        const [row] = await sql`
          select count(*)::int as heirs from keys where workspace_id = ${tenant.workspaceId} and name = 'heir'`;
        if (accepted || row?.["heirs"] !== 0) effects.push(`${name} by ${protocol}`);
        tried += 1;
      }
    }
    return outcomeOf(
      { refused: effects.length === 0 },
      `${tried - effects.length} of ${tried} refused${effects.length > 0 ? `; a key was created after ${effects.join(", ")}` : ""}`,
    );
  },
};

export const passedDeadline: Attack = {
  name: "passed-deadline",
  title: "a call takes effect although its deadline has passed",
  async run(site) {
    const target = await site.start();
    const { key, workspaceId } = await target.createTenant();
    const calls = 20;
    const socket = await openSocket(target.httpPort);
    site.afterwards(() => socket.destroy());
    for (let call = 0; call < calls; call++) {
      await fetch(`${target.httpUrl}/latchkey.v1.KeysService/CreateKey`, {
        method: "POST",
        headers: { ...jsonHeaders(key), "connect-timeout-ms": "0" },
        body,
      }).then((response) => response.text());
      const session = await openSession(site, target);
      const stream = openStream(session, "/latchkey.v1.KeysService/CreateKey", key, { "grpc-timeout": "0m" });
      stream?.end(
        prefixed(Buffer.from(toBinary(CreateKeyRequestSchema, create(CreateKeyRequestSchema, { name: "heir" })))),
      );
      if (stream) await Promise.race([once(stream.resume(), "close"), sleep(2_000)]);
      session.destroy();
    }
    const [row] = await target.sql()`
      select count(*)::int as made from keys where workspace_id = ${workspaceId} and name = 'heir'`;
    return outcomeOf(
      { "without effect": row?.["made"] === 0 },
      `${row?.["made"]} keys made by ${2 * calls} late calls`,
    );
  },
};
