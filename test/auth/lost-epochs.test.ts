import { expect, it } from "vitest";
import { disable, enable } from "./calls.js";
import { askBoth, createShared, inDatabase, outcomes, readTerms } from "./redis-entries.js";
import { openReplicas } from "./redis-replicas.js";

const replicas = openReplicas();

it("entries from epochs that the database has lost in a failover are not believed when it reaches them again", async () => {
  const { app, redis, others } = replicas;
  const busy = await createShared(app, redis);
  const beforeLoss = (await readTerms(app)).epoch;
  for (const change of [disable, enable, disable, enable]) await change(app, busy.workspaceId);
  // Left in Redis as of an epoch that will have been lost.
  const { workspaceId, key } = await createShared(app, redis);

  // What a standby would show that takes over without the last four changes.
  await inDatabase(
    app,
    `update epoch set value = ${beforeLoss}; alter table workspaces disable trigger user;
     update workspaces set changed_epoch = least(changed_epoch, ${beforeLoss});
     alter table workspaces enable trigger user`,
  );
  await disable(app, workspaceId);
  for (const change of [disable, enable, disable, enable]) await change(app, busy.workspaceId);
  expect((await readTerms(app)).epoch).toBeGreaterThan(beforeLoss + 4);
  expect(await askBoth(others, key)).toEqual(outcomes.workspaceDisabled);
});
