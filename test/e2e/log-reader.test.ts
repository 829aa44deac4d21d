import { closeSync, constants, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { until } from "./processes.js";
import { makePlace, project, start, stop } from "./service.js";

/** Their lines fill a pipe; and a pipe and all that may wait besides. */
const [some, many] = [600, 6_500];

test("whoever stops reading the log holds up neither calls nor a stop, and is told what was left out", {
  timeout: 120_000,
}, async () => {
  const place = makePlace();
  const pipe = join(place.folder, "log");
  // Opened for reading, too, so that the service can open it; nobody reads from it until the test does.
  const command = [
    "sh",
    "-c",
    'mkfifo log; exec 3<>log; exec "$0" "$1" 2>log',
    process.execPath,
    join(project, "dist/src/main.js"),
  ];
  const service = await start(place, { command: command as [string, ...string[]] });

  async function callOften(times: number): Promise<void> {
    const callers = Array.from({ length: 16 }, async (_, caller) => {
      for (let call = caller; call < times; call += 16) {
        const { status } = await fetch(`${service.httpUrl}/v1/keys.listKeys`, { method: "POST" });
        expect(status).toBe(401);
      }
    });
    await Promise.all(callers);
  }

  await callOften(many);
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
  onTestFinished(() => closeSync(reader));
  const lines = readLines(reader);
  const told = await until("it is told what was left out", async () => {
    await callOften(16);
    return lines().find(({ msg }) => msg.includes("dropped"));
  });
  const logged = lines().filter(({ code }) => code === "authentication/missing").length;
  expect(told["lines"]).toBeGreaterThan(0);
  expect(logged + (told["lines"] as number)).toBeGreaterThanOrEqual(many);

  // And once more nobody reads.
  await callOften(some);
  const { code } = await stop(service);
  expect(code).toBe(0);
});

/** Reads what there is, and tells all lines so far, each of them whole. */
function readLines(reader: number) {
  const buffer = Buffer.alloc(64 * 1024);
  let text = "";
  return () => {
    try {
      for (let length = 1; length > 0; text += buffer.toString("utf8", 0, length)) length = readSync(reader, buffer);
    } catch (error) {
      expect(error).toMatchObject({ code: "EAGAIN" }); // there is no more at present
    }
    const whole = text.slice(0, text.lastIndexOf("\n"));
    return whole
      .split("\n")
      .map((line) => JSON.parse(line) as { msg: string; code?: string } & Record<string, unknown>);
  };
}
