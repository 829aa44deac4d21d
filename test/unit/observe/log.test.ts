import { describe, expect, it } from "vitest";
import { unexpectedError } from "../../../src/errors.js";
import { createAccessLog } from "../../../src/observe/access-log.js";
import { createCallMetrics } from "../../../src/observe/call-metrics.js";
import { createLog, type LogLevel } from "../../../src/observe/log.js";

/** A log like that of a worker, and its lines. */
function openLog(level: LogLevel) {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  return { lines, log: createLog(level, { bindings: { worker: 2 }, destination }) };
}

const bindings = { protocol: "http", method: 'GET "quoted"' } as const;
const members = { requestId: "req_1", workspaceId: "ws_1", code: "ok", durationMs: 0.25 };
const withoutTime = (line: string | undefined) => line?.replace(/"time":"[^"]*"/, '"time":"…"');

describe("a line that is serialized already", () => {
  it("is the same as that of the general serialization", () => {
    const { log, lines } = openLog("info");
    log.lineWriter("info", bindings)(JSON.stringify({ ...members, msg: "call" }).slice(1, -1));
    log.child(bindings).info(members, "call");
    expect(lines).toHaveLength(2);
    expect(withoutTime(lines[0])).toBe(withoutTime(lines[1]));
  });

  it("is written only at level info or below", () => {
    const { log, lines } = openLog("warn");
    log.lineWriter("info", bindings)('"msg":"call"');
    expect(lines).toEqual([]);
  });
});

describe("the access log", () => {
  const call = { ...bindings, requestId: "req_1", workspaceId: "ws_1", startedAt: performance.now() };

  it("writes the bindings of the worker and of the RPC", () => {
    const { log, lines } = openLog("info");
    createAccessLog(log, createCallMetrics([]), new Set())({ ...call, error: undefined });
    const { durationMs: _, ...expected } = members;
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ level: 30, worker: 2, ...bindings, ...expected, msg: "call" });
  });

  it("writes the cause of an unexpected error, whatever the level", () => {
    const { log, lines } = openLog("error");
    createAccessLog(log, createCallMetrics([]), new Set())({ ...call, error: unexpectedError(new Error("broken")) });
    const err = expect.objectContaining({ message: "broken", stack: expect.any(String) });
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ level: 50, worker: 2, ...bindings, err, msg: "call" });
  });
});
