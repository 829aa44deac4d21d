import { createRegister, type Register, type Write } from "./register.js";

/** What a call can tell about: a workspace or a key, with everything that decides over it. */
export interface Subject {
  readonly name: string;
  readonly registers: Readonly<Record<string, Register>>;
  /** The last calls that told something about it, for the history of a violation. */
  readonly recent: JudgedCall[];
}

/** That, by the answer to a call, a register held this value while the call was made. */
export interface Observation {
  readonly subject: Subject;
  readonly register: string;
  readonly value: string;
}

/** A call that was answered, on the laboratory's own clock. */
export interface JudgedCall {
  readonly begin: number;
  readonly end: number;
  /** Through which protocol, on which replica, and what was answered: for people. */
  readonly label: string;
}

/** An answer that no state explains that was current while the call was made. */
export interface Violation {
  readonly call: JudgedCall;
  readonly subject: string;
  readonly register: string;
  readonly observed: string;
  readonly writes: readonly Write[];
  readonly callsBefore: readonly JudgedCall[];
  /** The faults that were on when it was found. */
  readonly faults?: readonly string[];
}

const recentCalls = 12;

export function createSubject(name: string, initial: Readonly<Record<string, string>>): Subject {
  const registers = Object.entries(initial).map(([register, value]) => [register, createRegister(value)]);
  return { name, registers: Object.fromEntries(registers), recent: [] };
}

/**
 * Judges a call when it has ended. Nothing that comes later can change the judgement: a write that begins after the end
 * of a call cannot explain its answer. So calls need not be kept, and a run of any length fits into memory.
 */
export function judge(call: JudgedCall, observations: readonly Observation[]): Violation[] {
  const violations: Violation[] = [];
  for (const { subject, register, value } of observations) {
    const { registers, recent } = subject;
    const held = registers[register];
    if (held !== undefined && !held.mayHold(value, call.begin, call.end)) {
      const writes = [...held.history()];
      violations.push({ call, subject: subject.name, register, observed: value, writes, callsBefore: [...recent] });
    }
    if (recent.at(-1) !== call) recent.push(call);
    if (recent.length > recentCalls) recent.shift();
  }
  return violations;
}
