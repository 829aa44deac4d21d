import { createHash } from "node:crypto";
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type JsonValue,
  type Message,
  type MessageInitShape,
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

/** Answers a request, whichever RPC it is of. */
export type Handle = (request: Message, context: CallContext) => MaybePromise<MessageInitShape<DescMessage>>;

/** Makes a handler of a repeatable RPC one that answers a repeated request as it did the first time. */
export type Idempotency = (method: DescMethodUnary, handle: Handle) => Handle;

/**
 * Only calls with an Idempotency-Key are looked at; all others go straight to their handler. Such a call makes its change
 * at most once, because the handler has the answer kept in the statement of the change (`context.keep`). What failed has
 * changed nothing and is not kept: to try again is right.
 *
 * @param holdings tell when all changes so far are durable, and every replica answers by them
 */
export function createIdempotency(
  store: IdempotencyStore,
  holdings: Pick<KeyCache, "knownTimeline" | "awaitEarlierChanges">,
): Idempotency {
  return (method, handle) => {
    async function handleOnce(request: Message, context: CallContext, key: string) {
      const { call } = context;
      const seal = createRecordCipher(credentialOf(call));
      const id = seal.recordId(key);

      function keep(answer: MessageInitShape<DescMessage>) {
        const bytes = toBinary(method.output, create(method.output, answer));
        const encrypted = seal.encrypt(id, Buffer.concat([fingerprintOf(method, request), bytes]));
        return { id, encrypted };
      }

      async function firstAnswer(): Promise<Message | undefined> {
        const history = holdings.knownTimeline();
        const encrypted = await store.findResponse(call, id, authorizedKeyOf(context.caller));
        if (encrypted === undefined) return undefined;
        const kept = seal.decrypt(id, encrypted);
        if (!isFingerprintOf(kept.subarray(0, fingerprintLength), method, request)) throw idempotencyConflict();
        // The first call may have ended before its change was durable, and known everywhere.
        await holdings.awaitEarlierChanges(call, history);
        return fromBinary(method.output, kept.subarray(fingerprintLength));
      }

      const first = await firstAnswer();
      if (first !== undefined) return first;
      try {
        return await handle(request, { ...context, record: keep });
      } catch (error) {
        const other = mayBeTooLate(error) ? await firstAnswer() : undefined;
        if (other === undefined) throw error;
        return other;
      }
    }

    return (request, context) => {
      const key = idempotencyKeyOf(context.call);
      return key === undefined ? handle(request, context) : handleOnce(request, context, key);
    };
  };
}

/** Another call with this key may have come first, and made what stands in the way of this one. */
function mayBeTooLate(error: unknown): boolean {
  if (isDuplicateIdempotencyKey(error)) return true;
  return (
    error instanceof ApiError && (categoryOf(error.code) === "data" || error.code === ErrorCode.LIMITS_QUOTA_EXCEEDED)
  );
}

/** Without a comma, because two headers may arrive as one, joined by it. */
const keyForm = /^[\x20-\x2b\x2d-\x7e]{1,255}$/;

function idempotencyKeyOf({ headers }: Call): string | undefined {
  const [key, ...more] = headers?.("idempotency-key") ?? [];
  if (key === undefined) return undefined;
  if (keyForm.test(key) && more.length === 0) return key;
  const message = "must be one header of 1 to 255 printable ASCII characters, none of them a comma";
  throw invalidInput([{ location: "Idempotency-Key", message }]);
}

/** What the caller was admitted by. It is read from the headers once more, so that no object has to carry it. */
function credentialOf({ headers }: Call): string {
  return bearerToken(headers?.("authorization")[0] ?? "");
}

const fingerprintLength = 32;

/** The same for the same request of the same RPC, through whichever protocol it comes, and in whatever order its maps are. */
function fingerprintOf({ parent, name, input }: DescMethodUnary, request: Message): Buffer {
  const text = JSON.stringify([parent.typeName, name, toJson(input, request)], inOrder);
  return createHash("sha256").update(text).digest();
}

function inOrder(_name: string, value: JsonValue): JsonValue {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}

/** A request is looked at before it is judged, since time alone may have made it invalid: `expires` in the past. */
function isFingerprintOf(fingerprint: Buffer, method: DescMethodUnary, request: Message): boolean {
  try {
    return fingerprintOf(method, request).equals(fingerprint);
  } catch {
    return false; // what cannot be written as JSON was never accepted
  }
}
