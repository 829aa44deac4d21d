import { openHttpClient } from "./http-client.js";
import type { Replica } from "./replica.js";
import { prepare } from "./request.js";
import { openSession } from "./session.js";
import type { WorkspaceSubject } from "./subjects.js";
import type { Writer } from "./writer.js";

/** More than a workspace may use connections at a time. */
const changes = 4;

const externalId = "occupied";

/** Occupies the connections that workspaces may use on a replica, so that other changes in them queue. */
export interface Occupant {
  /** Resolves to how to let them go. */
  occupy(replica: Replica): Promise<() => Promise<void>>;
}

/** With changes of an identity whose row it locks. Nobody else needs that row, so other replicas are not held up. */
export async function createOccupant(
  writer: Writer,
  homes: readonly WorkspaceSubject[],
  databaseUrl: string,
): Promise<Occupant> {
  // With a key, because that can be made again if nobody knows what became of the first.
  for (const { secret } of homes) await writer.create(prepare("createKey", secret, { externalId }));
  const change = homes.map(({ secret }) => prepare("updateIdentity", secret, { externalId, meta: {} }));

  return {
    async occupy(replica) {
      const protocol = openHttpClient(replica.httpPort);
      // A session of its own: an older one may have ended with its server.
      const own = openSession(databaseUrl);
      await own`begin`;
      for (const { workspaceId } of homes) {
        await own`
          select from identities where workspace_id = ${workspaceId} and external_id = ${externalId} for update`;
      }
      const answered = Array.from({ length: changes }, () =>
        change.map((request) => new Promise<void>((resolve) => protocol.call(request, () => resolve()))),
      );
      return async () => {
        await own`rollback`;
        await own.end({ timeout: 1 });
        await Promise.all(answered.flat());
        protocol.close();
      };
    },
  };
}
