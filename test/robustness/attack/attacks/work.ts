import { brotliCompressSync } from "node:zlib";
import { jsonHeaders } from "../../../support/clients/sockets.js";
import { type Attack, outcomeOf } from "../attack.js";
import { describe, startBystander, wasServed } from "../bystander.js";

const size = 120_000;
const items = (item: string) =>
  `[${Array.from({ length: Math.floor(size / (item.length + 1)) }, () => item).join(",")}]`;
const members = (count: number) => Array.from({ length: count }, (_, index) => `"m${index}":1`).join(",");

/** Bodies just below the maximum size, each expensive to validate in a different way. */
const bodies: Readonly<Record<string, string>> = {
  "scopes of numbers": `{"scopes":${items("1")}}`,
  "permissions of numbers": `{"permissions":${items("1")}}`,
  "empty permissions": `{"permissions":${items('""')}}`,
  "bad permissions": `{"permissions":${items('"!"')}}`,
  "unknown fields": `{${members(9_000)}}`,
  "wide meta": `{"meta":{${members(9_000)}}}`,
  "meta of lists": `{"meta":{"a":${items("[]")}}}`,
  "meta of objects": `{"meta":{"a":${items("{}")}}}`,
  "nested lists": `{"meta":${'{"a":'.repeat(10_000)}1${"}".repeat(10_000)}}`,
  "nested arrays": `{"meta":{"a":${"[".repeat(50_000)}${"]".repeat(50_000)}}}`,
  "a number of many zeros": `{"name":${"0".repeat(size)}1}`,
  "a number of many digits": `{"name":1${"0".repeat(size)}1}`,
  "one long text": `{"name":"${"x".repeat(size)}"}`,
  "escaped text": `{"name":"${"\\u0061".repeat(size / 6)}"}`,
};

export const expensiveBodies: Attack = {
  name: "expensive-bodies",
  title: "the validation of one request blocks the process",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const bystander = await startBystander(context, target);
    const slowest = { name: "", ms: 0 };
    for (const path of [
      "/v2/keys.createKey",
      "/latchkey.v1.KeysService/CreateKey",
      "/latchkey.v1.KeysService/VerifyKey",
    ]) {
      for (const [name, body] of Object.entries(bodies)) {
        const startedAt = performance.now();
        await fetch(target.httpUrl + path, { method: "POST", headers: jsonHeaders(key), body }).then((r) => r.text());
        const ms = performance.now() - startedAt;
        if (ms > slowest.ms) Object.assign(slowest, { name: `${name} to ${path}`, ms });
      }
    }
    const measurements = await bystander.finish();
    return outcomeOf(
      { "other tenants served": wasServed(measurements) },
      `slowest: ${slowest.name}, ${slowest.ms.toFixed(0)} ms; ${describe(measurements)}`,
    );
  },
};

export const compressedBodies: Attack = {
  name: "compressed-bodies",
  title: "a few compressed bytes expand to a body that blocks the process",
  async run(context) {
    const target = await context.start();
    const { key } = await target.createTenant();
    const bystander = await startBystander(context, target);
    const body = brotliCompressSync(Buffer.from(`{"permissions":[${"1,".repeat(500_000)}1]}`));
    const statuses = new Set<number>();
    for (const method of ["CreateKey", "UpdateKey", "VerifyKey"]) {
      const response = await fetch(`${target.httpUrl}/latchkey.v1.KeysService/${method}`, {
        method: "POST",
        headers: { ...jsonHeaders(key), "content-encoding": "br" },
        body,
      });
      await response.text();
      statuses.add(response.status);
    }
    const measurements = await bystander.finish();
    return outcomeOf(
      { "other tenants served": wasServed(measurements), "all refused": !statuses.has(200) },
      `${body.length} bytes, status ${[...statuses].join(", ")}; ${describe(measurements)}`,
    );
  },
};
