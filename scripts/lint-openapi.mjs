// Lints gen/openapi.json with the rules of Redocly: its library, because the command line would ask the network for news.
import { createConfig, lint } from "@redocly/openapi-core";

const config = await createConfig({
  extends: ["recommended-strict"],
  rules: {
    "info-license": "off", // there is none to name
    "operation-4xx-response": "off", // the probes know no fault of the caller's
    "no-invalid-schema-examples": "error",
    "operation-operationId": "error",
  },
});

const problems = await lint({ ref: "gen/openapi.json", config });
for (const { ruleId, message, location } of problems) {
  process.stderr.write(`gen/openapi.json ${location[0]?.pointer ?? ""}: ${message} (${ruleId})\n`);
}
if (problems.length > 0) process.exitCode = 1;
