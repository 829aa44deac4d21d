import { closeSync, constants, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { until } from "./processes.js";
import { makeSandbox, project, start, stop } from "./service.js";

/** Numbers of calls whose log lines fill a pipe, and a pipe together with the log buffer. */
const [fillsPipe, fillsBuffer] = [600, 6_500];

test("a log reader that stops reading blocks neither calls nor shutdown, and the number of dropped lines is logged", {
  timeout: 120_000,
}, async () => {
  const sandbox = makeSandbox();
  const pipe = join(sandbox.folder, "log");
  // Opened for reading, too, so that the service can open it. Nothing reads from it until the test does.
  const command = [
    "sh",
    "-c",
    'mkfifo log; exec 3<>log; exec "$0" "$1" 2>log',
    process.execPath,
    join(project, "dist/src/main.js"),
  ];
  const service = await start(sandbox, { command: command as [string, ...string[]] });

  async function callOften(times: number): Promise<void> {
    const callers = Array.from({ length: 16 }, async (_, caller) => {
      for (let call = caller; call < times; call += 16) {
        const { status } = await fetch(`${service.httpUrl}/v1/keys.listKeys`, { method: "POST" });
        expect(status).toBe(401);
      }
    });
    await Promise.all(callers);
  }

  await callOften(fillsBuffer);
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
  onTestFinished(() => closeSync(reader));
  const lines = readLines(reader);
  const dropped = await until("the number of dropped lines is logged", async () => {
    await callOften(16);
    return lines().find(({ msg }) => msg.includes("dropped"));
  });
  const logged = lines().filter(({ code }) => code === "authentication/missing").length;
  expect(dropped["lines"]).toBeGreaterThan(0);
  expect(logged + (dropped["lines"] as number)).toBeGreaterThanOrEqual(fillsBuffer);

  // The reader stops again.
  await callOften(fillsPipe);
  const { code } = await stop(service);
  expect(code).toBe(0);
});

/** Reads all available output, and returns all complete lines so far. */
function readLines(reader: number) {
  const buffer = Buffer.alloc(64 * 1024);
  let text = "";
  return () => {
    try {
      for (let length = 1; length > 0; text += buffer.toString("utf8", 0, length)) length = readSync(reader, buffer);
    } catch (error) {
      expect(error).toMatchObject({ code: "EAGAIN" }); // no more output at the moment
    }
    const complete = text.slice(0, text.lastIndexOf("\n"));
    return complete
      .split("\n")
      .map((line) => JSON.parse(line) as { msg: string; code?: string } & Record<string, unknown>);
  };
}
