import type { App } from "../app.js";
import { unnamedOperator } from "../call/operators.js";
import type { Config } from "../config.js";
import type { CertificateFiles } from "../net/certificates.js";

export interface BannerOptions {
  readonly config: Config;
  readonly app: App;
  readonly operatorKeyFile: string;
  /** The file with the key of the first workspace; undefined if this installation has none. */
  readonly firstKeyFile: string | undefined;
  /** That key, if it is to be printed: only at the start that created it, and only on a terminal. */
  readonly shownKey: string | undefined;
}

/** The text that the start prints: the addresses, the settings, and example commands. */
export function banner(options: BannerOptions): string {
  const { config, app, operatorKeyFile, firstKeyFile, shownKey } = options;
  const rows = {
    "HTTP/JSON, Connect": app.httpUrl,
    gRPC: app.grpcAddress,
    ...(config.tls && { TLS: tls(config.tls) }),
    ...(app.metricsUrl && { Metrics: app.metricsUrl }),
    PostgreSQL: config.databaseUrl ? "from DATABASE_URL" : `embedded, data in ${config.dataDir}`,
    Redis: redis(config),
    "Operator key": operatorKeys(config) ?? `in ${operatorKeyFile}`,
    ...(firstKeyFile && { "First key": `in ${firstKeyFile}` }),
  };
  return `
Latchkey is running.

${Object.entries(rows)
  .map(([name, value]) => `  ${name.padEnd(20)}${value}`)
  .join("\n")}
${shownKey ? `\nThe key of your first workspace (shown only once):\n\n  ${shownKey}\n` : ""}
Try it in another terminal:

${examples(options)
  .map((example) => `  ${example}\n`)
  .join("\n")}
Ctrl-C stops it.
`;
}

function tls({ certFile, clientCaFile }: CertificateFiles): string {
  return `certificate from ${certFile}${clientCaFile ? `; client certificates are required, signed by ${clientCaFile}` : ""}`;
}

function redis({ databaseUrl, redis }: Config): string {
  if (redis) return "from REDIS_URL";
  return databaseUrl ? "none (set REDIS_URL to use a Redis cache)" : "embedded";
}

/** The variables of the operator credentials; undefined if there are none. */
function operatorKeys({ operators }: Config): string | undefined {
  if (operators.length === 0) return undefined;
  const isUnnamed = ({ actor }: Config["operators"][number]) => actor === unnamedOperator;
  const variables = [
    ...(operators.some(isUnnamed) ? ["OPERATOR_KEY"] : []),
    ...(operators.every(isUnnamed) ? [] : ["OPERATOR_KEYS"]),
  ];
  return `from ${variables.join(" and ")}`;
}

/**
 * The commands read the credential from its file, so they work as pasted and leave no secret in the shell's history. A
 * configured credential can come from several variables and files, and the other terminal may have none of them. So the shell
 * says what to set if OPERATOR_KEY is not set there.
 */
function examples({ config, app, operatorKeyFile, firstKeyFile }: BannerOptions): string[] {
  const tlsFlags = config.tls ? `${caFlags(config.tls)} ` : "";
  if (firstKeyFile === undefined) {
    const operator = config.operators.length > 0 ? shellOperatorKey : catFile(operatorKeyFile);
    const body = `-H 'Content-Type: application/json' -d '{"name":"My first workspace"}'`;
    return [
      `curl ${tlsFlags}${app.httpUrl}/v2/workspaces.createWorkspace -H "Authorization: Bearer ${operator}" ${body}`,
    ];
  }
  const bearer = `-H "Authorization: Bearer ${catFile(firstKeyFile)}"`;
  const grpcUrl = `${config.tls ? "https" : "http"}://${app.grpcAddress}`;
  return [
    `curl -X POST ${tlsFlags}${app.httpUrl}/v1/keys.listKeys ${bearer}`,
    `npx @bufbuild/buf curl --protocol grpc ${tlsFlags || "--http2-prior-knowledge "}${bearer} ${grpcUrl}/latchkey.v1.KeysService/ListKeys`,
  ];
}

// biome-ignore lint/suspicious/noTemplateCurlyInString: syntax of the shell
const shellOperatorKey = "${OPERATOR_KEY:?set it to an operator credential}";

/** The commands trust the certificate itself, because this machine may not know its CA. */
function caFlags({ certFile, clientCaFile }: CertificateFiles): string {
  return `--cacert ${quoted(certFile)}${clientCaFile ? " --cert client.crt --key client.key" : ""}`;
}

function catFile(file: string): string {
  return `$(cat ${quoted(file)})`;
}

function quoted(file: string): string {
  return `'${file.replaceAll("'", `'\\''`)}'`;
}
