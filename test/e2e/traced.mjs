// Loaded before the service, as users load an OpenTelemetry SDK. It writes the names of spans to a file.
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

// Longer than the test takes: spans are exported only because the service exits.
const batchOptions = { scheduledDelayMillis: 600_000 };
new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter, batchOptions)] }).register();
