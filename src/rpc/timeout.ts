import { invalidInput } from "../errors.js";

/** The header of each protocol that carries the client's timeout. */
const timeouts = {
  connect: {
    location: "connect-timeout-ms",
    pattern: /^\d{1,10}$/,
    message: "must be a number of milliseconds with at most ten digits",
  },
  grpc: {
    location: "grpc-timeout",
    pattern: /^\d{1,8}[HMSmun]$/,
    message: "must be a number with at most eight digits, followed by a unit (H, M, S, m, u or n)",
  },
};

/** Throws `invalid_input` for a malformed timeout. Undefined: the client sent none. */
export function validateTimeout(protocol: keyof typeof timeouts, value: string | undefined): void {
  const { location, pattern, message } = timeouts[protocol];
  if (value !== undefined && !pattern.test(value)) throw invalidInput([{ location, message }]);
}

const unitsInMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/** The client's timeout. Infinite if it sent none, or a malformed one. */
export function timeoutMs(protocol: keyof typeof timeouts, value: string | undefined): number {
  if (value === undefined || !timeouts[protocol].pattern.test(value)) return Number.POSITIVE_INFINITY;
  if (protocol === "connect") return Number(value);
  return Math.ceil(Number(value.slice(0, -1)) * (unitsInMs[value.slice(-1)] as number));
}
