import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { parse, parseAllDocuments } from "yaml";
import { imageEnvironment } from "./dockerfile.mjs";
import { renderChart } from "./helm-template.mjs";
import { secrets, settingsProblems, shutdownSeconds } from "./settings.mjs";

const chart = "deploy/helm/latchkey";
const scratch = "third_party/.deploy";

/** Values that use each part of the chart. */
const valuesOf = {
  "the least values": { existingSecret: "latchkey" },
  "all values": {
    existingSecret: "latchkey",
    image: { repository: "registry.example.com/latchkey", tag: "0.2.0" },
    imagePullSecrets: ["registry"],
    settings: { RATE_LIMIT: "600", WORKERS: 2 },
    tls: { existingSecret: "latchkey-tls", clientCertificates: true },
    shutdownDelaySeconds: 30,
    service: { type: "LoadBalancer", annotations: { "example.com/internal": "true" } },
    networkPolicy: { clients: [{ podSelector: { matchLabels: { app: "gateway" } } }] },
    serviceMonitor: { enabled: true, labels: { release: "prometheus" } },
    nodeSelector: { "kubernetes.io/os": "linux" },
    tolerations: [{ key: "dedicated", operator: "Exists" }],
    affinity: { nodeAffinity: {} },
    podAnnotations: { "example.com/team": "platform" },
  },
  "no network policy": { existingSecret: "latchkey", networkPolicy: { enabled: false, monitoring: [] } },
};

/** The keys of Secrets with which the Pods must start. */
const keysOfSecrets = [
  ["DATABASE_URL", "OPERATOR_KEY"],
  ["DATABASE_URL", "OPERATOR_KEYS"],
  ["DATABASE_URL", "OPERATOR_KEY", "OPERATOR_KEYS", "REDIS_URL"],
];

/** The chart's manifests against the types of the Kubernetes API, and against each other. */
export function chartProblems() {
  try {
    const rendered = Object.entries(valuesOf).map(([name, values]) => ({ name, manifests: render(values) }));
    return [
      ...versionProblems(),
      ...requiredProblems(),
      ...typeProblems(rendered),
      ...rendered.flatMap(({ name, manifests }) =>
        referenceProblems(manifests).map((problem) => `${chart}, with ${name}: ${problem}`),
      ),
    ];
  } catch (error) {
    return [`${chart}: ${error.message}`];
  }
}

function render(values) {
  return [...renderChart(chart, values)].flatMap(([file, text]) =>
    parseAllDocuments(text).flatMap((document) => {
      if (document.errors.length > 0) throw new Error(`templates/${file}: ${document.errors[0].message}`);
      const manifest = document.toJS();
      return manifest === null ? [] : [manifest];
    }),
  );
}

function versionProblems() {
  const { version } = JSON.parse(readFileSync("package.json", "utf8"));
  const { appVersion } = parse(readFileSync(`${chart}/Chart.yaml`, "utf8"));
  return appVersion === version ? [] : [`${chart}/Chart.yaml: appVersion must be ${version}, as in package.json`];
}

function requiredProblems() {
  try {
    renderChart(chart, {});
  } catch (error) {
    if (error.message.includes("existingSecret")) return [];
    throw error;
  }
  return [`${chart}: without existingSecret, the chart must fail`];
}

/**
 * TypeScript checks each manifest as a literal of its type. Unlike Kubernetes' own schemas, this also finds fields that do
 * not exist, which Kubernetes would ignore or refuse.
 */
function typeProblems(rendered) {
  rmSync(scratch, { recursive: true, force: true });
  for (const { name, manifests } of rendered) {
    mkdirSync(`${scratch}/${name}`, { recursive: true });
    for (const [index, manifest] of manifests.entries()) {
      const literal = JSON.stringify(manifest, null, 2);
      const source = `${importOf(manifest)}\nexport const manifest: ${manifest.kind} = ${literal};\n`;
      writeFileSync(`${scratch}/${name}/${manifest.kind}-${index}.ts`, source);
    }
  }
  const compilerOptions = { strict: true, noEmit: true, module: "nodenext", skipLibCheck: true, types: [] };
  writeFileSync(`${scratch}/tsconfig.json`, JSON.stringify({ compilerOptions }));
  const { status, stdout } = spawnSync("node_modules/.bin/tsc", ["-p", scratch], { encoding: "utf8" });
  return status === 0 ? [] : stdout.trim().split("\n");
}

/** kubernetes-types has the folders apps/v1, core/v1, networking/v1 and so on. */
function importOf({ apiVersion, kind }) {
  if (kind === "ServiceMonitor") return serviceMonitorType;
  const [version, group = "core"] = apiVersion.split("/").reverse();
  return `import type { ${kind} } from "kubernetes-types/${group.split(".")[0]}/${version}.d.ts";`;
}

/** Of the Prometheus operator. Only what the chart uses: the package of its types brings 25 others along. */
const serviceMonitorType = `import type { LabelSelector, ObjectMeta } from "kubernetes-types/meta/v1.d.ts";
interface ServiceMonitor {
  apiVersion: "monitoring.coreos.com/v1";
  kind: "ServiceMonitor";
  metadata: ObjectMeta;
  spec: { selector: LabelSelector; endpoints: { port: string; path: string; interval: string }[] };
}`;

/** Names and labels by which the manifests refer to each other, the settings, and the time to stop. */
function referenceProblems(manifests) {
  const byKind = (kind) => manifests.filter((manifest) => manifest.kind === kind);
  const [deployment] = byKind("Deployment");
  const { metadata, spec } = deployment.spec.template;
  const [container] = spec.containers;
  const ports = container.ports.map(({ name }) => name);
  const probes = [container.startupProbe, container.livenessProbe, container.readinessProbe];
  const services = byKind("Service");

  const selectors = [
    deployment.spec.selector.matchLabels,
    ...services.map((service) => service.spec.selector),
    ...byKind("PodDisruptionBudget").map((budget) => budget.spec.selector.matchLabels),
    ...byKind("NetworkPolicy").map((policy) => policy.spec.podSelector.matchLabels),
  ];
  const namedPorts = [
    ...probes.map((probe) => probe?.httpGet?.port),
    ...services.flatMap((service) => service.spec.ports.map(({ targetPort }) => targetPort)),
    ...byKind("NetworkPolicy").flatMap((policy) =>
      policy.spec.ingress.flatMap((rule) => rule.ports.map(({ port }) => port)),
    ),
  ];
  const monitored = byKind("ServiceMonitor").map(({ spec: { selector, endpoints } }) =>
    services.some(
      (service) =>
        matches(service.metadata.labels, selector.matchLabels) &&
        endpoints.every(({ port }) => service.spec.ports.some(({ name }) => name === port)),
    ),
  );
  const environments = keysOfSecrets.map((keys) => ({ keys, environment: environmentOf(container, keys) }));
  const settings = environments.flatMap(({ keys, environment }) => [
    ...missingKeys(container, keys).map((key) => `a Secret with ${keys.join(", ")} needs ${key}, too`),
    ...settingsProblems(`env, and a Secret with ${keys.join(", ")}`, environment),
  ]);
  const [{ environment }] = environments;
  const needed = settings.length > 0 ? 0 : shutdownSeconds(environment) + container.lifecycle.preStop.sleep.seconds;
  return [
    ...settings,
    ...selectors
      .filter((selector) => !matches(metadata.labels, selector))
      .map((selector) => `the selector ${JSON.stringify(selector)} does not match the Pods`),
    ...namedPorts.filter((port) => !ports.includes(port)).map((port) => `the container has no port ${port}`),
    ...monitored.filter((found) => !found).map(() => "the ServiceMonitor matches no Service with its port"),
    ...(spec.terminationGracePeriodSeconds < needed
      ? [`terminationGracePeriodSeconds must be at least ${needed}`]
      : []),
  ];
}

function matches(labels, selector) {
  return Object.entries(selector).every(([name, value]) => labels[name] === value);
}

/** The variables of a container whose Secret has these keys. */
function environmentOf({ env }, keys) {
  const variables = env
    .filter(({ valueFrom }) => valueFrom === undefined || keys.includes(valueFrom.secretKeyRef.key))
    .map(({ name, value, valueFrom }) => [name, valueFrom === undefined ? value : secrets[valueFrom.secretKeyRef.key]]);
  return { ...imageEnvironment(), ...Object.fromEntries(variables) };
}

/** The keys without which Kubernetes does not start a container whose Secret has these keys. */
function missingKeys({ env }, keys) {
  const required = env.map(({ valueFrom }) => valueFrom?.secretKeyRef).filter((ref) => ref && !ref.optional);
  return required.map(({ key }) => key).filter((key) => !keys.includes(key));
}
