// What somebody who wants traces loads before the service: an SDK, which here writes the names of spans into a file.
import { appendFileSync } from "node:fs";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const exporter = {
  export(spans, done) {
    for (const { name, attributes } of spans) {
      const line = { pid: process.pid, name, system: attributes["db.system.name"] ?? attributes["rpc.system"] };
      appendFileSync(process.env.SPANS_FILE, `${JSON.stringify(line)}\n`);
    }
    done({ code: 0 });
  },
  shutdown: async () => {},
};

// Longer than the test takes: what is written was sent because the service ended.
const patient = { scheduledDelayMillis: 600_000 };
new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter, patient)] }).register();
