import { pino } from "pino";
import { beforeEach, describe, expect, it } from "vitest";
import { createOutageLog, type OutageLog } from "../../../src/observe/outage-log.js";

let lines: { level: number; msg: string; reason?: string }[];
let outage: OutageLog;
beforeEach(() => {
  lines = [];
  const write = (line: string) => void lines.push(JSON.parse(line));
  outage = createOutageLog(pino({ base: null, timestamp: false }, { write }), "error");
});

describe("an outage", () => {
  it("is logged once when it begins and once when it ends", () => {
    outage.recovered("it works again");
    outage.failed("it fails", { reason: "first" });
    outage.failed("it fails", { reason: "second" });
    outage.recovered("it works again");
    outage.recovered("it works again");
    expect(lines).toEqual([
      { level: 50, reason: "first", msg: "it fails" },
      { level: 30, msg: "it works again" },
    ]);
  });

  it("that follows another is logged again", () => {
    outage.failed("it fails", {});
    outage.recovered("it works again");
    outage.failed("it fails", {});
    expect(lines.map(({ msg }) => msg)).toEqual(["it fails", "it works again", "it fails"]);
  });

  it("whose reason changes is logged with each new reason", () => {
    for (const reason of ["no file", "no file", "no key", "no file"]) outage.failed("it fails", { reason }, reason);
    expect(lines.map(({ reason }) => reason)).toEqual(["no file", "no key", "no file"]);
  });

  it("whose end has no message ends without a line", () => {
    outage.failed("it fails", {});
    expect(outage.ongoing).toBe(true);
    outage.recovered();
    expect(outage.ongoing).toBe(false);
    expect(lines).toHaveLength(1);
  });
});
