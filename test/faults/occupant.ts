import { openSql } from "../../commands/open-sql.js";
import { openHttpDoor } from "./http-door.js";
import type { Replica } from "./replica.js";
import { prepare } from "./request.js";
import { createWorkspace } from "./workspace-life.js";
import type { Writer } from "./writer.js";

/** More than a replica has connections. */
const changes = 12;

/** Occupies the connections of a replica to its database, so that other changes queue for them. */
export interface Occupant {
  /** Resolves to how to let them go. */
  occupy(replica: Replica): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

/** With changes of an identity whose row it locks. Nobody else needs that row, so other replicas are not held up. */
export async function createOccupant(writer: Writer, operatorKey: string, databaseUrl: string): Promise<Occupant> {
  const home = await createWorkspace(writer, operatorKey);
  const { secret = "", workspaceId = "" } = home ?? {};
  const externalId = "occupied";
  // With a key, because that can be made again if nobody knows what became of the first.
  await writer.create(prepare("createKey", secret, { externalId }));
  const change = prepare("updateIdentity", secret, { externalId, meta: {} });
  const sql = openSql(databaseUrl, { max: 1, onnotice: () => {} });

  return {
    async occupy(replica) {
      const door = openHttpDoor(replica.httpPort);
      const own = await sql.reserve();
      await own`begin`;
      await own`
        select from identities where workspace_id = ${workspaceId} and external_id = ${externalId} for update`;
      const answered = Array.from(
        { length: changes },
        () => new Promise<void>((resolve) => door.call(change, () => resolve())),
      );
      return async () => {
        await own`rollback`;
        own.release();
        await Promise.all(answered);
        door.close();
      };
    },
    close: () => sql.end({ timeout: 1 }),
  };
}
