import { openHttpClient } from "../../support/clients/low-cost/http.js";
import { prepare } from "../../support/clients/low-cost/request.js";
import type { Replica } from "./replica.js";
import { openSession } from "./session.js";
import type { WorkspaceSubject } from "./subjects.js";
import type { Writer } from "./writer.js";

/** More than the number of connections that a workspace may use at a time. */
const concurrentChanges = 4;

const externalId = "occupied";

/** Occupies the pool connections that workspaces may use on a replica, so that their other changes queue. */
export interface PoolExhauster {
  /** Resolves to a function that releases them. */
  occupy(replica: Replica): Promise<() => Promise<void>>;
}

/** Sends changes of an identity whose row it locks. No other call needs that row, so other replicas are not blocked. */
export async function createPoolExhauster(
  writer: Writer,
  keyWorkspaces: readonly WorkspaceSubject[],
  databaseUrl: string,
): Promise<PoolExhauster> {
  // A createKey creates the identity, too, and can be repeated if the outcome of the first attempt is unknown.
  for (const { secret } of keyWorkspaces) await writer.create(prepare("createKey", secret, { externalId }));
  const requests = keyWorkspaces.map(({ secret }) => prepare("updateIdentity", secret, { externalId, meta: {} }));

  return {
    async occupy(replica) {
      const client = openHttpClient(replica.httpPort);
      // A new session, because an older one may have ended with its server.
      const session = openSession(databaseUrl);
      await session`begin`;
      for (const { workspaceId } of keyWorkspaces) {
        await session`
          select from identities where workspace_id = ${workspaceId} and external_id = ${externalId} for update`;
      }
      const responses = Array.from({ length: concurrentChanges }, () =>
        requests.map((request) => new Promise<void>((resolve) => client.call(request, () => resolve()))),
      );
      return async () => {
        await session`rollback`;
        await session.end({ timeout: 1 });
        await Promise.all(responses.flat());
        client.close();
      };
    },
  };
}
