import { describe, expect, it } from "vitest";
import { checkCall, createSubject, type Subject } from "./checker.js";
import { retentionMs } from "./register.js";

function workspace() {
  const subject = createSubject("ws_1", { workspace: "enabled" });
  return { subject, write: (value: string, begin: number) => registerOf(subject).write(value, begin) };
}

function registerOf(subject: Subject) {
  const register = subject.registers["workspace"];
  if (register === undefined) throw new Error("no register");
  return register;
}

/** The number of violations of a call that observed this value. */
function violations(subject: Subject, value: string, begin: number, end: number): number {
  return checkCall({ begin, end, label: "call" }, [{ subject, register: "workspace", value }]).length;
}

describe("an acknowledged write binds every call that begins after it", () => {
  it("an acceptance that began after the disable was acknowledged is a violation", () => {
    const { subject, write } = workspace();
    write("disabled", 10).acknowledged(20);
    expect(violations(subject, "enabled", 21, 25)).toBe(1);
    expect(violations(subject, "disabled", 21, 25)).toBe(0);
  });

  it("a refusal that began after the enable was acknowledged is a violation", () => {
    const { subject, write } = workspace();
    write("disabled", 10).acknowledged(20);
    write("enabled", 30).acknowledged(40);
    expect(violations(subject, "disabled", 41, 45)).toBe(1);
    expect(violations(subject, "enabled", 41, 45)).toBe(0);
  });

  it("a refusal before any disable began is a violation", () => {
    const { subject, write } = workspace();
    expect(violations(subject, "disabled", 1, 5)).toBe(1);
    write("disabled", 10).acknowledged(20);
    expect(violations(subject, "disabled", 6, 9)).toBe(1);
  });

  it("a call that began at the moment of the acknowledgement is not bound by it", () => {
    const { subject, write } = workspace();
    write("disabled", 10).acknowledged(20);
    expect(violations(subject, "enabled", 20, 25)).toBe(0);
  });
});

describe("a call that overlaps a write may see either value", () => {
  it("while the write is pending", () => {
    const { subject, write } = workspace();
    const disable = write("disabled", 10);
    expect(violations(subject, "enabled", 11, 12)).toBe(0);
    expect(violations(subject, "disabled", 11, 12)).toBe(0);
    disable.acknowledged(20);
    expect(violations(subject, "enabled", 19, 30)).toBe(0);
  });

  it("a call over a whole disable and enable may see the state between them", () => {
    const { subject, write } = workspace();
    write("disabled", 10).acknowledged(20);
    write("enabled", 30).acknowledged(40);
    expect(violations(subject, "disabled", 25, 50)).toBe(0);
    expect(violations(subject, "enabled", 5, 50)).toBe(0);
  });

  it("a call that ended before the enable began cannot have seen it", () => {
    const { subject, write } = workspace();
    write("disabled", 10).acknowledged(20);
    write("enabled", 30);
    expect(violations(subject, "enabled", 21, 29)).toBe(1);
    expect(violations(subject, "enabled", 21, 30)).toBe(0);
  });
});

describe("a write with an unknown outcome may take effect at any later moment", () => {
  it("both values are possible after it, however late", () => {
    const { subject, write } = workspace();
    write("disabled", 10).unknown(20);
    for (const value of ["enabled", "disabled"]) expect(violations(subject, value, 1_000, 1_001)).toBe(0);
  });

  it("not before its begin", () => {
    const { subject, write } = workspace();
    write("disabled", 10).unknown(20);
    expect(violations(subject, "disabled", 1, 9)).toBe(1);
  });

  it("an acknowledged write of the other value does not settle it", () => {
    const { subject, write } = workspace();
    write("disabled", 10).unknown(20);
    write("enabled", 30).acknowledged(40);
    expect(violations(subject, "disabled", 50, 51)).toBe(0);
  });

  it("an acknowledged repetition of the same value settles it", () => {
    const { subject, write } = workspace();
    write("disabled", 10).unknown(20);
    write("disabled", 30).acknowledged(40);
    expect(violations(subject, "enabled", 35, 51)).toBe(0);
    expect(violations(subject, "enabled", 41, 51)).toBe(1);
  });
});

describe("the retained writes", () => {
  it("a write that was not applied explains nothing afterwards", () => {
    const { subject, write } = workspace();
    write("disabled", 10).notApplied();
    expect(violations(subject, "disabled", 21, 22)).toBe(1);
    expect(violations(subject, "enabled", 21, 22)).toBe(0);
  });

  it("old writes are pruned, unknown ones never, and results stay the same", () => {
    const { subject, write } = workspace();
    write("paused", 1).unknown(2);
    for (let at = 10; at < 10 + 4 * retentionMs; at += 1_000) {
      write(at % 2_000 === 10 ? "disabled" : "enabled", at).acknowledged(at + 100);
    }
    const { length } = registerOf(subject).history();
    expect(length).toBeLessThan(40);
    const last = 10 + 4 * retentionMs;
    expect(violations(subject, "paused", last, last)).toBe(0);
    expect(violations(subject, "disabled", last, last)).toBe(1);
    expect(violations(subject, "enabled", last, last)).toBe(0);
  });

  it("a violation lists the writes and the calls before it", () => {
    const { subject, write } = workspace();
    write("disabled", 10).acknowledged(20);
    violations(subject, "disabled", 21, 22);
    const [violation] = checkCall({ begin: 23, end: 24, label: "grpc on replica 2" }, [
      { subject, register: "workspace", value: "enabled" },
    ]);
    expect(violation).toMatchObject({
      subject: "ws_1",
      observed: "enabled",
      call: { label: "grpc on replica 2" },
      callsBefore: [{ begin: 21, end: 22 }],
    });
    expect(violation?.writes.at(-1)).toEqual({ value: "disabled", begin: 10, end: 20, outcome: "acknowledged" });
  });

  it("a register has one writer at a time", () => {
    const { write } = workspace();
    write("disabled", 10);
    expect(() => write("enabled", 11)).toThrow("one writer");
  });
});
