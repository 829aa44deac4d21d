// What the manifests set, compared with what the service reads. The service itself is asked, so there is no list to keep.
import { readFileSync } from "node:fs";

const { readConfig } = await import(new URL("../../dist/src/config.js", import.meta.url));

/** Every environment variable that the service reads. */
const known = new Set();
readConfig(
  new Proxy(
    {},
    {
      get(_, name) {
        known.add(name);
        return undefined;
      },
    },
  ),
);
if (known.size < 20) throw new Error("cannot determine the settings of the service");

/** Values for the secrets, which no manifest contains. */
export const secrets = {
  DATABASE_URL: "postgres://latchkey:password@postgres:5432/latchkey",
  REDIS_URL: "redis://valkey:6379",
  OPERATOR_KEY: "an-operator-key-for-this-check",
  OPERATOR_KEYS: "alice:a-key-of-alice-for-this-check,deploy:a-key-of-deploy-for-this-check",
};

/** Variables that the service does not read, and values that it refuses. */
export function settingsProblems(where, environment) {
  const unknown = Object.keys(environment).filter((name) => !known.has(name));
  if (unknown.length > 0) return unknown.map((name) => `${where}: ${name} is not a setting of the service`);
  try {
    readConfig(environment);
    return [];
  } catch (error) {
    return [`${where}: ${error.message}`];
  }
}

/** The ports of a service with these settings. */
export function portsOf(environment) {
  const { httpPort, grpcPort, metricsPort } = readConfig(environment);
  return { httpPort, grpcPort, metricsPort };
}

/** How long a shutdown can take with these settings, in seconds, before the service manager may kill the process. */
export function shutdownSeconds(environment) {
  const source = readFileSync(new URL("../../src/app.ts", import.meta.url), "utf8");
  const [lingerMs, drainMs] = ["lingerMs", "drainMs"].map((name) => {
    const [, digits] = new RegExp(`^const ${name} = ([\\d_]+);$`, "m").exec(source) ?? [];
    if (digits === undefined) throw new Error(`src/app.ts does not define ${name}`);
    return Number(digits.replaceAll("_", ""));
  });
  return (readConfig(environment).shutdownDelayMs + lingerMs + drainMs) / 1000;
}
