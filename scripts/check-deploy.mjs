// Checks the files in deploy/ without a container engine or a cluster: their syntax, their schemas, and that they fit the
// service. It starts nothing, pulls no image and does not resolve image names. Needs a build.
import { chartProblems } from "./deploy/chart.mjs";
import { composeProblems } from "./deploy/compose.mjs";
import { dockerfileProblems } from "./deploy/dockerfile.mjs";
import { unitProblems } from "./deploy/unit.mjs";

const checks = { dockerfile: dockerfileProblems, compose: composeProblems, chart: chartProblems, unit: unitProblems };

/** All of them, or those that the arguments name. */
const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(checks);
const problems = names.flatMap((name) => checks[name]());
for (const problem of problems) process.stderr.write(`${problem}\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
