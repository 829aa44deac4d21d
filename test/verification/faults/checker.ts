import { createRegister, type Register, type Write } from "./register.js";

/** A workspace or a key, with every value that decides whether calls with it are accepted. */
export interface Subject {
  readonly name: string;
  readonly registers: Readonly<Record<string, Register>>;
  /** The last calls that observed it, for the report of a violation. */
  readonly recent: CheckedCall[];
}

/** The result of a call implies that a register had this value at some moment during the call. */
export interface Observation {
  readonly subject: Subject;
  readonly register: string;
  readonly value: string;
}

/** A finished call, timed by the clock of the test process. */
export interface CheckedCall {
  readonly begin: number;
  readonly end: number;
  /** Operation, protocol, replica and result, for the report. */
  readonly label: string;
}

/** A result that no state explains that was current during the call. */
export interface Violation {
  readonly call: CheckedCall;
  readonly subject: string;
  readonly register: string;
  readonly observed: string;
  readonly writes: readonly Write[];
  readonly callsBefore: readonly CheckedCall[];
  /** The faults that were active when it was found. */
  readonly faults?: readonly string[];
}

const maxRecentCalls = 12;

export function createSubject(name: string, initial: Readonly<Record<string, string>>): Subject {
  const registers = Object.entries(initial).map(([register, value]) => [register, createRegister(value)]);
  return { name, registers: Object.fromEntries(registers), recent: [] };
}

/**
 * Checks a finished call. A write that begins after the end of a call cannot explain its result, so later events do not
 * change the outcome. Calls need not be stored, and a run of any length fits into memory.
 */
export function checkCall(call: CheckedCall, observations: readonly Observation[]): Violation[] {
  const violations: Violation[] = [];
  for (const { subject, register, value } of observations) {
    const { registers, recent } = subject;
    const checked = registers[register];
    if (checked !== undefined && !checked.couldHold(value, call.begin, call.end)) {
      const writes = [...checked.history()];
      violations.push({ call, subject: subject.name, register, observed: value, writes, callsBefore: [...recent] });
    }
    if (recent.at(-1) !== call) recent.push(call);
    if (recent.length > maxRecentCalls) recent.shift();
  }
  return violations;
}
