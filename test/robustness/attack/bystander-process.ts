import { setTimeout as sleep } from "node:timers/promises";
import type { Measurements } from "./bystander.js";

const [, , httpUrl = "", key = ""] = process.argv;
const warmUpCalls = 200;
const pauseMs = 5;

let finishing = false;
process.on("message", () => {
  finishing = true;
});
process.on("disconnect", () => process.exit());

const warmUp: number[] = [];
for (let call = 0; call < warmUpCalls; call++) warmUp.push((await verify()).ms);
warmUp.sort((one, other) => one - other);
process.send?.("ready");

let calls = 0;
let failed = 0;
let worstMs = 0;
while (!finishing) {
  const { ms, succeeded } = await verify();
  calls += 1;
  if (!succeeded) failed += 1;
  worstMs = Math.max(worstMs, ms);
  await sleep(pauseMs);
}
const measurements: Measurements = { calls, failed, normalMs: warmUp[warmUpCalls / 2] ?? 0, worstMs };
process.send?.(measurements);

async function verify(): Promise<{ ms: number; succeeded: boolean }> {
  const startedAt = performance.now();
  const succeeded = await fetch(`${httpUrl}/v2/keys.verifyKey`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ key }),
  }).then(
    async (response) => {
      await response.text();
      return response.ok;
    },
    () => false,
  );
  return { ms: performance.now() - startedAt, succeeded };
}
