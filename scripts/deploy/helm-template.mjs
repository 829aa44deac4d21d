// Renders the templates of the Helm chart. Written by hand, because Helm itself is not on npm, and no package there
// implements Go templates with `if`, `range` and `define`. It covers what the chart uses, and fails on everything else.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";

/** The rendered text of each template of a chart, by its file name, like `helm template`. */
export function renderChart(folder, values) {
  const chart = parse(readFileSync(join(folder, "Chart.yaml"), "utf8"));
  const defaults = parse(readFileSync(join(folder, "values.yaml"), "utf8"));
  const context = {
    Values: merge(defaults, values),
    Chart: { Name: chart.name, Version: chart.version, AppVersion: chart.appVersion },
    Release: { Name: "release", Namespace: "default", Service: "Helm" },
  };
  const templates = join(folder, "templates");
  const defined = new Map();
  const parsed = readdirSync(templates).map((name) => {
    const nodes = parseTemplate(readFileSync(join(templates, name), "utf8"), name);
    for (const node of nodes) if (node.kind === "define") defined.set(node.name, node.body);
    return { name, nodes };
  });
  return new Map(
    parsed
      .filter(({ name }) => !name.startsWith("_"))
      .map(({ name, nodes }) => [name, render(nodes, { dot: context, variables: { "": context }, defined })]),
  );
}

/** Maps are merged; everything else is replaced. */
function merge(defaults, values) {
  if (!isMap(defaults) || !isMap(values)) return values === undefined ? defaults : values;
  const names = new Set([...Object.keys(defaults), ...Object.keys(values)]);
  return Object.fromEntries([...names].map((name) => [name, merge(defaults[name], values[name])]));
}

function isMap(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The nodes of a template: texts, pipelines and blocks. */
function parseTemplate(source, file) {
  const parts = source.split(/(\{\{-?.*?-?\}\})/s);
  const items = parts.map((part, index) => {
    if (index % 2 === 1) return { action: part.replace(/^\{\{-?|-?\}\}$/g, "").trim() };
    const trimmedStart = parts[index - 1]?.endsWith("-}}") ? part.trimStart() : part;
    return { text: parts[index + 1]?.startsWith("{{-") ? trimmedStart.trimEnd() : trimmedStart };
  });
  let position = 0;

  function parseNodes(isEnd) {
    const nodes = [];
    while (position < items.length) {
      const { text, action } = items[position];
      if (action !== undefined && isEnd(action)) return nodes;
      position += 1;
      if (text !== undefined) nodes.push({ kind: "text", text });
      else nodes.push(parseAction(action));
    }
    if (isEnd("end")) throw new Error(`${file}: an end is missing`);
    return nodes;
  }

  function parseAction(action) {
    const [, keyword = "", rest = ""] = /^(if|with|range|define)\s+(.*)$/s.exec(action) ?? [];
    if (keyword === "") return { kind: "output", pipeline: parsePipeline(action, file) };
    if (keyword === "define") return { kind: "define", name: JSON.parse(rest), body: parseBlock().body };
    const [, names, source = rest] = /^((?:\$\w+\s*,\s*)?\$\w+)\s*:=\s*(.*)$/s.exec(rest) ?? [];
    const variables = names?.split(",").map((name) => name.trim().slice(1));
    return { kind: keyword, variables, pipeline: parsePipeline(source, file), ...parseBlock() };
  }

  /** Up to its `end`. An `else if` is a block in the `else` part. */
  function parseBlock() {
    const body = parseNodes((action) => action === "end" || /^else\b/.test(action));
    const { action } = items[position];
    position += 1;
    if (action === "end") return { body, otherwise: [] };
    const nested = action.replace(/^else\s*/, "");
    if (nested !== "") return { body, otherwise: [parseAction(nested)] };
    const otherwise = parseNodes((next) => next === "end");
    position += 1;
    return { body, otherwise };
  }

  return parseNodes(() => false);
}

/** A list of commands, each a list of operands. */
function parsePipeline(source, file) {
  const tokens = [...source.matchAll(/\s*("(?:[^"\\]|\\.)*"|-?\d+|[()|]|\$?\w*(?:\.\w+)+|\$\w*|\.|\w+)/gy)];
  if (tokens.map(([text]) => text).join("") !== source.trimEnd())
    throw new Error(`${file}: cannot parse {{ ${source} }}`);
  const words = tokens.map(([, token]) => token);

  function parseCommands() {
    const commands = [[]];
    for (let word = words.shift(); word !== undefined && word !== ")"; word = words.shift()) {
      if (word === "|") commands.push([]);
      else commands.at(-1).push(word === "(" ? { commands: parseCommands() } : word);
    }
    return commands;
  }
  return parseCommands();
}

function render(nodes, scope) {
  return nodes.map((node) => renderers[node.kind](node, scope)).join("");
}

const renderers = {
  text: ({ text }) => text,
  define: () => "",
  output({ pipeline }, scope) {
    const value = evaluate(pipeline, scope);
    if (value === undefined || value === null) throw new Error(`${JSON.stringify(pipeline)} has no value`);
    return String(value);
  },
  if: ({ pipeline, body, otherwise }, scope) => render(isEmpty(evaluate(pipeline, scope)) ? otherwise : body, scope),
  with({ pipeline, body, otherwise }, scope) {
    const value = evaluate(pipeline, scope);
    return isEmpty(value) ? render(otherwise, scope) : render(body, { ...scope, dot: value });
  },
  range({ pipeline, variables, body, otherwise }, scope) {
    const value = evaluate(pipeline, scope);
    if (isEmpty(value)) return render(otherwise, scope);
    // Go ranges over the sorted keys of a map.
    const entries = Array.isArray(value)
      ? [...value.entries()]
      : Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return entries.map((entry) => render(body, { ...scope, dot: entry[1], variables: bind(entry) })).join("");

    function bind([key, item]) {
      const [first, second] = variables ?? [];
      if (first === undefined) return scope.variables;
      return { ...scope.variables, ...(second === undefined ? { [first]: item } : { [first]: key, [second]: item }) };
    }
  },
};

function evaluate(commands, scope) {
  return commands.reduce((piped, [first, ...operands], index) => {
    const args = operands.map((operand) => operandValue(operand, scope));
    if (index > 0) args.push(piped);
    if (typeof first === "string" && /^[a-z]\w*$/i.test(first) && !["true", "false", "nil"].includes(first)) {
      const call = functions[first];
      if (call === undefined) throw new Error(`the function ${first} is not supported`);
      return call(scope, ...args);
    }
    if (args.length > 0) throw new Error(`${JSON.stringify(first)} is not a function`);
    return operandValue(first, scope);
  }, undefined);
}

function operandValue(operand, scope) {
  if (typeof operand !== "string") return evaluate(operand.commands, scope);
  if (/^["\d-]/.test(operand)) return JSON.parse(operand);
  if (operand === "true" || operand === "false") return operand === "true";
  const [, variable, path] = /^(\$\w*)?((?:\.\w*)*)$/.exec(operand) ?? [];
  if (path === undefined) throw new Error(`${operand} is not supported as an argument`);
  const start = variable === undefined ? scope.dot : scope.variables[variable.slice(1)];
  if (start === undefined) throw new Error(`${operand} has no value`);
  return path
    .split(".")
    .filter(Boolean)
    .reduce((value, name) => {
      if (!isMap(value) || !Object.hasOwn(value, name)) throw new Error(`${operand} is not in values.yaml`);
      return value[name];
    }, start);
}

function isEmpty(value) {
  if (Array.isArray(value)) return value.length === 0;
  return isMap(value) ? Object.keys(value).length === 0 : !value;
}

/** Helm's functions that the chart uses. A pipe passes its value as the last argument. */
const functions = {
  add: (_, ...numbers) => numbers.reduce((sum, number) => sum + number, 0),
  mul: (_, ...numbers) => numbers.reduce((product, number) => product * number, 1),
  default: (_, fallback, value) => (isEmpty(value) ? fallback : value),
  include: (scope, name, dot) => render(scope.defined.get(name), { ...scope, dot, variables: { "": dot } }),
  nindent: (_, spaces, text) => `\n${text.replace(/^/gm, " ".repeat(spaces))}`,
  quote: (_, value) => JSON.stringify(String(value)),
  required(_, message, value) {
    if (isEmpty(value)) throw new Error(message);
    return value;
  },
  toYaml: (_, value) => stringify(value, { lineWidth: 0 }).trimEnd(),
  trimSuffix: (_, suffix, text) => (text.endsWith(suffix) ? text.slice(0, -suffix.length) : text),
  trunc: (_, length, text) => text.slice(0, length),
};
