// Loaded first into the service under load. Asked, it collects garbage by the inspector, as Chrome's memory panel does,
// and tells what is left.
import { Session } from "node:inspector/promises";

process.on("message", async (question) => {
  if (question !== "sample") return;
  const session = new Session();
  session.connect();
  await session.post("HeapProfiler.collectGarbage");
  session.disconnect();
  const { heapUsed, rss, external } = process.memoryUsage();
  process.send({
    heapBytes: heapUsed,
    rssBytes: rss,
    externalBytes: external,
    resources: countBy(process.getActiveResourcesInfo()),
    listeners: process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0),
  });
});
process.channel?.unref();

function countBy(names) {
  const counts = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}
