// Lints gen/openapi.json with Redocly's rules. It uses the library, because the CLI checks for updates online.
import { createConfig, lint } from "@redocly/openapi-core";

const config = await createConfig({
  extends: ["recommended-strict"],
  rules: {
    "info-license": "off", // the project has no license
    "operation-4xx-response": "off", // the probes have no client errors
    "no-invalid-schema-examples": "error",
    "operation-operationId": "error",
  },
});

const problems = await lint({ ref: "gen/openapi.json", config });
for (const { ruleId, message, location } of problems) {
  process.stderr.write(`gen/openapi.json ${location[0]?.pointer ?? ""}: ${message} (${ruleId})\n`);
}
if (problems.length > 0) process.exitCode = 1;
