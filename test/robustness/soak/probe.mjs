// Preloaded into the service under load. On a "sample" message, it collects garbage through the inspector, as Chrome's
// memory panel does, and sends the memory use. Compiled code is not counted: V8 compiles more of it for as long as it
// finds something to optimize, and for minutes that is most of the growth.
import { Session } from "node:inspector/promises";
import { getHeapCodeStatistics } from "node:v8";

process.on("message", async (message) => {
  if (message !== "sample") return;
  const session = new Session();
  session.connect();
  await session.post("HeapProfiler.collectGarbage");
  session.disconnect();
  const { heapUsed, rss, external } = process.memoryUsage();
  const { code_and_metadata_size: code, bytecode_and_metadata_size: bytecode } = getHeapCodeStatistics();
  process.send({
    heapBytes: heapUsed - code - bytecode,
    codeBytes: code + bytecode,
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
