import { readFileSync } from "node:fs";
import { DCLinter } from "dclint";
import { parse } from "yaml";
import { imageEnvironment } from "./dockerfile.mjs";
import { portsOf, secrets, settingsProblems, shutdownSeconds } from "./settings.mjs";

const file = "deploy/compose/compose.yaml";
const loadBalancer = "deploy/compose/haproxy.cfg";

/** The Compose file against the schema of the Compose specification, and the load balancer against the service. */
export function composeProblems() {
  const found = lintProblems();
  if (found.length > 0) return found;
  const compose = parse(readFileSync(file, "utf8"));
  const { latchkey } = compose.services;
  const environment = { ...imageEnvironment(), ...interpolated(latchkey.environment) };
  const problems = settingsProblems(`${file}: latchkey`, environment);
  if (problems.length > 0) return problems;
  return [
    ...stopProblems(latchkey, environment),
    ...publishedProblems(compose.services),
    ...loadBalancerProblems(environment),
  ];
}

/** The schema of the Compose specification, and rules of the linter that are errors, not those of its style. */
function lintProblems() {
  // `image` names what `build` has built.
  const linter = new DCLinter({ rules: { "no-build-and-image": 0 }, quiet: true, debug: false, exclude: [] });
  const messages = linter.lintFiles([file], false).flatMap((result) => result.messages);
  return messages
    .filter(({ type }) => type === "error")
    .map(({ line, message }) => `${file}: line ${line}: ${message}`);
}

/** The values with those of a complete .env file. */
function interpolated(environment) {
  const password = "password";
  return Object.fromEntries(
    Object.entries(environment).map(([name, value]) => [
      name,
      String(value).replace(/\$\{(\w+)(?::\?[^}]*)?\}/g, (_, variable) => secrets[variable] ?? password),
    ]),
  );
}

function stopProblems({ stop_grace_period: grace = "10s" }, environment) {
  const needed = shutdownSeconds(environment);
  const given = /^\d+s$/.test(grace) ? Number.parseInt(grace, 10) : 0;
  return given >= needed ? [] : [`${file}: the stop_grace_period of latchkey must be at least ${needed}s`];
}

/** Clients must pass the load balancer, and nobody outside may reach the backends or the metrics. */
function publishedProblems(services) {
  const published = Object.keys(services).filter((name) => services[name].ports !== undefined);
  return published
    .filter((name) => name !== "load-balancer")
    .map((name) => `${file}: only load-balancer may publish ports, not ${name}`);
}

function loadBalancerProblems(environment) {
  const { httpPort, grpcPort, metricsPort } = portsOf(environment);
  const text = readFileSync(loadBalancer, "utf8");
  const expected = [`latchkey:${httpPort}`, `latchkey:${grpcPort} proto h2`, `http-check connect port ${metricsPort} `];
  return expected
    .filter((part) => !text.includes(part))
    .map((part) => `${loadBalancer}: "${part}" is missing, by the ports of the service`);
}
