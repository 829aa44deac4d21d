import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { VerificationCodeSchema } from "../../gen/latchkey/v1/keys_service_pb.js";
import { type DelegateRequest, DelegateResponseSchema } from "../../gen/latchkey/v1/verifier_service_pb.js";
import type { ServeStream } from "../call/stream.js";
import { serviceShuttingDown, tooManyVerifiers } from "../errors.js";
import type { LastUsed } from "../keys/last-used.js";
import { allRowsOf } from "../revocation/change-log.js";
import type { Change } from "../revocation/change-store.js";
import type { KeyCache } from "../revocation/key-cache.js";
import type { Lease } from "../revocation/lease.js";
import type { LookupLimit } from "../revocation/lookup-limit.js";
import type { VerificationCounter } from "../usage/counter.js";
import { createVerifierStream, type VerifierStream } from "./stream.js";

/**
 * Grants parts of this process's lease to clients that verify keys themselves.
 *
 * Why a client never accepts a key after its revocation has returned. Let the poll behind our lease be sent at p, a ping
 * of the client at s, and our grant at g, with s ≤ g. The client verifies until s + remaining < g + remaining, which is
 * the end of our lease. A revocation that returned before a local verification began was visible before p. So we
 * invalidated it on the stream before we extended the lease, and therefore before the grant.
 */
export interface Delegation {
  readonly serve: ServeStream<DelegateRequest, MessageInitShape<typeof DelegateResponseSchema>>;
  /**
   * Must be called with new changes before the lease is extended, in the same turn of the event loop.
   *
   * @param changes undefined if they are not known in detail
   */
  invalidate(changes: readonly Change[] | undefined): void;
  /** Must be called after the lease was extended. */
  renewed(): void;
  /** Ends all streams, and refuses new ones: the process shuts down. */
  end(): void;
  /** The number of open streams. */
  readonly openStreams: number;
  /** The number of verifications that clients have reported, by code. */
  readonly verifications: Readonly<Record<string, number>>;
}

export function createDelegation(
  lease: Pick<Lease, "remaining" | "databaseTime">,
  keyCache: Pick<KeyCache, "ensureLease" | "peek" | "get" | "mayHaveImports">,
  lastUsed: Pick<LastUsed, "record">,
  counter: Pick<VerificationCounter, "count">,
  lookups: LookupLimit,
): Delegation {
  const byWorkspace = new Map<string, Set<VerifierStream>>();
  const verifications = Object.fromEntries(reportedCodes.map((code) => [code, 0]));
  let openStreams = 0;
  let isEnding = false;

  function* allStreams(): Generator<VerifierStream> {
    for (const streams of byWorkspace.values()) yield* streams;
  }

  return {
    get openStreams() {
      return openStreams;
    },
    verifications,

    serve(channel, caller) {
      if (isEnding) throw serviceShuttingDown();
      const { workspaceId } = caller;
      const streams = byWorkspace.get(workspaceId) ?? new Set();
      if (streams.size >= maxStreams) throw tooManyVerifiers(maxStreams);
      const sources = { lease, keyCache, lastUsed, counter, lookups, verifications };
      const stream = createVerifierStream(channel, caller, sources, () => {
        if (!streams.delete(stream)) return;
        openStreams -= 1;
        if (streams.size === 0) byWorkspace.delete(workspaceId);
      });
      byWorkspace.set(workspaceId, streams.add(stream));
      openStreams += 1;
      return stream;
    },

    invalidate(changes) {
      if (openStreams === 0) return;
      if (changes === undefined) {
        for (const stream of [...allStreams()]) stream.invalidateAll();
        return;
      }
      for (const [workspaceId, ids] of idsByWorkspace(changes)) {
        const invalidatesAll = ids.includes(allRowsOf(workspaceId));
        const message = invalidationOf(ids);
        for (const stream of [...(byWorkspace.get(workspaceId) ?? [])]) {
          if (invalidatesAll) stream.invalidateAll();
          else stream.invalidate(message);
        }
      }
    },

    renewed() {
      for (const stream of [...allStreams()]) stream.grant();
    },

    end() {
      isEnding = true;
      for (const stream of [...allStreams()]) stream.end(serviceShuttingDown());
    },
  };
}

/** How many streams of one workspace a process serves. Each change of the workspace is sent on all of them. */
const maxStreams = 1_000;

function idsByWorkspace(changes: readonly Change[]): Map<string, string[]> {
  const byWorkspace = new Map<string, string[]>();
  for (const { workspaceId, id } of changes) {
    const ids = byWorkspace.get(workspaceId);
    if (ids === undefined) byWorkspace.set(workspaceId, [id]);
    else ids.push(id);
  }
  return byWorkspace;
}

/** The codes that a client can report. The proto refuses others. */
const reportedCodes = VerificationCodeSchema.values.map(({ localName }) => localName).slice(1);

/** Frozen, so that it is encoded once for all streams. */
const invalidationOf = (ids: string[]) =>
  Object.freeze(create(DelegateResponseSchema, { message: { case: "invalidate", value: { ids } } }));
