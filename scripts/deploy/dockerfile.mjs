import { existsSync, readFileSync } from "node:fs";
import { DockerfileParser } from "dockerfile-ast";
import { validate } from "dockerfile-utils";
import { portsOf, settingsProblems } from "./settings.mjs";

const file = "deploy/Dockerfile";

/** Syntax and bad practice, by the linter; then what this project requires of its image. */
export function dockerfileProblems() {
  const text = readFileSync(file, "utf8");
  const found = validate(text).map(({ message, range }) => `line ${range.start.line + 1}: ${message}`);
  if (found.length > 0) return found.map((problem) => `${file}: ${problem}`);
  const dockerfile = DockerfileParser.parse(text);
  const stages = stagesOf(dockerfile);
  return [
    ...stages.flatMap(imageProblems),
    ...stages.flatMap(copyProblems),
    ...stages.flatMap(workspaceProblems),
    ...imageRules(stages.at(-1)),
  ].map((problem) => `${file}: ${problem}`);
}

/** The variables that the image sets. */
export function imageEnvironment() {
  return environmentOf(stagesOf(DockerfileParser.parse(readFileSync(file, "utf8"))).at(-1));
}

function stagesOf(dockerfile) {
  const stages = [];
  for (const instruction of dockerfile.getInstructions()) {
    if (instruction.getKeyword() === "FROM") stages.push([]);
    stages.at(-1)?.push(instruction);
  }
  return stages;
}

function of(stage, keyword) {
  return stage.filter((instruction) => instruction.getKeyword() === keyword);
}

function textOf(instruction) {
  return instruction?.getArgumentsContent() ?? "";
}

/** The variables of a build without arguments: an ARG without a default is empty. */
function environmentOf(stage) {
  const args = new Set(of(stage, "ARG").map((instruction) => `$${textOf(instruction)}`));
  const properties = of(stage, "ENV").flatMap((instruction) => instruction.getProperties());
  return Object.fromEntries(
    properties.map((property) => [property.getName(), args.has(property.getValue()) ? "" : property.getValue()]),
  );
}

function imageProblems([from]) {
  const tag = from.getImageTag();
  return tag === null || tag === "latest" ? [`${textOf(from)} needs a version, or each build may use another one`] : [];
}

/** Files of the context must exist, and .dockerignore must let them through. */
function copyProblems(stage) {
  const [everything, ...allowed] = readFileSync(".dockerignore", "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  if (everything !== "*" || allowed.some((line) => !line.startsWith("!"))) {
    return [".dockerignore must exclude everything with *, and then include single paths with !"];
  }
  return contextSources(stage).flatMap((source) => {
    if (!existsSync(source)) return [`COPY ${source}: there is no such file`];
    const isAllowed = allowed.some((line) => `${source}/`.startsWith(`${line.slice(1)}/`));
    return isAllowed ? [] : [`COPY ${source}: .dockerignore excludes it`];
  });
}

/** What a stage copies from the project, not from another stage. */
function contextSources(stage) {
  return of(stage, "COPY")
    .filter((copy) => !copy.getFlags().some((flag) => flag.getName() === "from"))
    .flatMap((copy) => copy.getArguments().slice(0, -1))
    .map((argument) => argument.getValue());
}

/** `npm ci` fails if the package.json of a workspace is missing. */
function workspaceProblems(stage) {
  if (!of(stage, "RUN").some((command) => /\bnpm ci\b/.test(textOf(command)))) return [];
  const { workspaces = [] } = JSON.parse(readFileSync("package.json", "utf8"));
  return workspaces
    .map((workspace) => `${workspace}/package.json`)
    .filter((needed) => !contextSources(stage).includes(needed))
    .map((needed) => `a stage with npm ci must COPY ${needed}, too`);
}

function imageRules(stage) {
  const environment = environmentOf(stage);
  const problems = settingsProblems("ENV", environment);
  if (problems.length > 0) return problems;
  const { httpPort, grpcPort, metricsPort } = portsOf(environment);
  const [user, healthCheck, entryPoint, exposed] = ["USER", "HEALTHCHECK", "ENTRYPOINT", "EXPOSE"].map((keyword) =>
    textOf(of(stage, keyword).at(-1)),
  );
  return [
    !/^[1-9]\d*(:[1-9]\d*)?$/.test(user) && "USER must be the number of a user without privileges",
    !healthCheck.includes("CMD [") && "HEALTHCHECK must run a command without a shell",
    /\b(curl|wget)\b/.test(healthCheck) && "HEALTHCHECK must not need curl or wget, which the image does not have",
    !entryPoint.startsWith("[") && "ENTRYPOINT must be a JSON array, so that the service receives signals itself",
    exposed !== `${httpPort} ${grpcPort} ${metricsPort}` &&
      `EXPOSE must be the ports of the service: ${httpPort} ${grpcPort} ${metricsPort}`,
  ].filter(Boolean);
}
