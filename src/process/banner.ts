import type { App } from "../app.js";
import type { Config } from "../config.js";
import type { CertificateFiles } from "../net/certificates.js";

export interface BannerFacts {
  readonly config: Config;
  readonly app: App;
  readonly operatorKeyFile: string;
  /** Where the key of the first workspace is kept; undefined if this installation has none. */
  readonly firstKeyFile: string | undefined;
  /** That key, if it is to be shown: at the one start that made it, on a terminal. */
  readonly shownKey: string | undefined;
}

/** The first lines on the screen: what runs where, and what to paste next. */
export function banner(facts: BannerFacts): string {
  const { config, app, operatorKeyFile, firstKeyFile, shownKey } = facts;
  const rows = {
    "HTTP/JSON, Connect": app.httpUrl,
    gRPC: app.grpcAddress,
    ...(config.tls && { TLS: tls(config.tls) }),
    ...(app.metricsUrl && { Metrics: app.metricsUrl }),
    PostgreSQL: config.databaseUrl ? "from DATABASE_URL" : `embedded, data in ${config.dataDir}`,
    Redis: redis(config),
    "Operator key": config.operatorKey ? "from OPERATOR_KEY" : `in ${operatorKeyFile}`,
    ...(firstKeyFile && { "First key": `in ${firstKeyFile}` }),
  };
  return `
Latchkey is running.

${Object.entries(rows)
  .map(([name, value]) => `  ${name.padEnd(20)}${value}`)
  .join("\n")}
${shownKey ? `\nThe key of your first workspace, shown this once:\n\n  ${shownKey}\n` : ""}
Try it in another terminal:

${examples(facts)
  .map((example) => `  ${example}\n`)
  .join("\n")}
Ctrl-C stops it.
`;
}

function tls({ certFile, clientCaFile }: CertificateFiles): string {
  return `certificate from ${certFile}${clientCaFile ? `; clients need one that ${clientCaFile} signed` : ""}`;
}

function redis({ databaseUrl, redis }: Config): string {
  if (redis) return "from REDIS_URL";
  return databaseUrl ? "none (set REDIS_URL to have a cache)" : "embedded";
}

/** Commands that read the credential from its file: nothing to fill in, and no secret in the shell's history. */
function examples({ config, app, operatorKeyFile, firstKeyFile }: BannerFacts): string[] {
  const trust = config.tls ? `${trusting(config.tls)} ` : "";
  if (firstKeyFile === undefined) {
    const operator = config.operatorKey ? "$OPERATOR_KEY" : contentOf(operatorKeyFile);
    const body = `-H 'Content-Type: application/json' -d '{"name":"My first workspace"}'`;
    return [`curl ${trust}${app.httpUrl}/v2/workspaces.createWorkspace -H "Authorization: Bearer ${operator}" ${body}`];
  }
  const bearer = `-H "Authorization: Bearer ${contentOf(firstKeyFile)}"`;
  const grpcUrl = `${config.tls ? "https" : "http"}://${app.grpcAddress}`;
  return [
    `curl -X POST ${trust}${app.httpUrl}/v1/keys.listKeys ${bearer}`,
    `npx buf curl --protocol grpc ${trust || "--http2-prior-knowledge "}${bearer} ${grpcUrl}/latchkey.v1.KeysService/ListKeys`,
  ];
}

/** The certificate itself is trusted: who signed it need not be known to this machine. */
function trusting({ certFile, clientCaFile }: CertificateFiles): string {
  return `--cacert ${quoted(certFile)}${clientCaFile ? " --cert client.crt --key client.key" : ""}`;
}

function contentOf(file: string): string {
  return `$(cat ${quoted(file)})`;
}

function quoted(file: string): string {
  return `'${file.replaceAll("'", `'\\''`)}'`;
}
