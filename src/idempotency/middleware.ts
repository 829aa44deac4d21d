import { createHash } from "node:crypto";
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type JsonValue,
  type Message,
  type MessageInitShape,
  mergeFromJson,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { ErrorCode } from "../../gen/latchkey/v1/errors_pb.js";
import type { Call } from "../call/call.js";
import { authorizedKeyOf, type CallContext } from "../call/context.js";
import { bearerToken } from "../call/credential.js";
import type { MaybePromise } from "../call/maybe-promise.js";
import { ApiError, categoryOf, idempotencyConflict, invalidInput } from "../errors.js";
import type { KeyCache } from "../revocation/key-cache.js";
import { createRecordCipher } from "./cipher.js";
import { type IdempotencyStore, isDuplicateIdempotencyKey } from "./store.js";

/** Handles a request of any RPC. */
export type Handle = (request: Message, context: CallContext) => MaybePromise<MessageInitShape<DescMessage>>;

/** Wraps the handler of an idempotent RPC: a retried request gets the first response. */
export type Idempotency = (method: DescMethodUnary, handle: Handle) => Handle;

/**
 * Applies only to calls with an Idempotency-Key; all others go directly to their handler. A call with a key makes its
 * change at most once, because the handler stores the response in the statement of the change (`context.record`).
 * Errors are not stored: a failed call has changed nothing, so a retry may run.
 *
 * @param keyCache waits until all earlier changes are durable and known to every replica
 * @param keptHours how long responses are stored
 */
export function createIdempotency(
  store: IdempotencyStore,
  keyCache: Pick<KeyCache, "knownTimeline" | "awaitEarlierChanges">,
  keptHours: number,
): Idempotency {
  return (method, handle) => {
    async function handleIdempotently(request: Message, context: CallContext, key: string) {
      const { call, caller } = context;
      const workspaceId = caller.kind === "key" ? caller.workspaceId : null;
      const cipher = createRecordCipher(credentialOf(call));
      const id = cipher.recordId(key);

      function createRecord(response: MessageInitShape<DescMessage>) {
        const bytes = toBinary(method.output, create(method.output, response));
        const encrypted = cipher.encrypt(id, Buffer.concat([fingerprintOf(method, request), bytes]));
        return { id, workspaceId, encrypted, keptHours };
      }

      async function findFirstResponse(): Promise<Message | undefined> {
        const timeline = keyCache.knownTimeline();
        const stored = await store.findResponse(call, id, authorizedKeyOf(caller));
        if (stored === undefined) return undefined;
        const record = cipher.decrypt(id, stored.encryptedResponse);
        if (!isFingerprintOf(record.subarray(0, fingerprintLength), method, request)) throw idempotencyConflict();
        // The first call may have ended before its change was durable and known to every replica.
        await keyCache.awaitEarlierChanges(call, timeline);
        const response = fromBinary(method.output, record.subarray(fingerprintLength));
        return mergeFromJson(method.output, response, stored.completion ?? {});
      }

      const first = await findFirstResponse();
      if (first !== undefined) return first;
      try {
        return await handle(request, { ...context, record: createRecord });
      } catch (error) {
        const concurrent = mayHaveLostRace(error) ? await findFirstResponse() : undefined;
        if (concurrent === undefined) throw error;
        return concurrent;
      }
    }

    return (request, context) => {
      const key = idempotencyKeyOf(context.call);
      return key === undefined ? handle(request, context) : handleIdempotently(request, context, key);
    };
  };
}

/** Whether a concurrent call with the same idempotency key may have made the change that this error results from. */
function mayHaveLostRace(error: unknown): boolean {
  if (isDuplicateIdempotencyKey(error)) return true;
  return (
    error instanceof ApiError && (categoryOf(error.code) === "data" || error.code === ErrorCode.LIMITS_QUOTA_EXCEEDED)
  );
}

/** Without a comma: an HTTP server may join two headers with it. */
const keyFormat = /^[\x20-\x2b\x2d-\x7e]{1,255}$/;

function idempotencyKeyOf({ headers }: Call): string | undefined {
  const [key, ...more] = headers?.("idempotency-key") ?? [];
  if (key === undefined) return undefined;
  if (keyFormat.test(key) && more.length === 0) return key;
  const message = "must be a single header of 1 to 255 printable ASCII characters without a comma";
  throw invalidInput([{ location: "Idempotency-Key", message }]);
}

/** The caller's bearer token. It is read from the headers again, so that no object has to contain it. */
function credentialOf({ headers }: Call): string {
  return bearerToken(headers?.("authorization")[0] ?? "");
}

const fingerprintLength = 32;

/** Equal for equal requests of the same RPC, over any protocol and for any order of map entries. */
function fingerprintOf({ parent, name, input }: DescMethodUnary, request: Message): Buffer {
  const text = JSON.stringify([parent.typeName, name, toJson(input, request)], sortEntries);
  return createHash("sha256").update(text).digest();
}

function sortEntries(_name: string, value: JsonValue): JsonValue {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}

/** The request is not validated yet: time alone may have made it invalid, for example an `expires` in the past. */
function isFingerprintOf(fingerprint: Buffer, method: DescMethodUnary, request: Message): boolean {
  try {
    return fingerprintOf(method, request).equals(fingerprint);
  } catch {
    return false; // a request that cannot be encoded as JSON was never accepted
  }
}
