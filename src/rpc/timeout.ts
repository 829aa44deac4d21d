import { invalidInput } from "../errors.js";

/** How each protocol writes for how long its client waits. */
const timeouts = {
  connect: {
    location: "connect-timeout-ms",
    form: /^\d{1,10}$/,
    message: "must be at most ten digits, in milliseconds",
  },
  grpc: { location: "grpc-timeout", form: /^\d{1,8}[HMSmun]$/, message: "must be at most eight digits and a unit" },
};

/** Refuses a time-out that makes no sense. Undefined: none was given. */
export function refuseBadTimeout(protocol: keyof typeof timeouts, given: string | undefined): void {
  const { location, form, message } = timeouts[protocol];
  if (given !== undefined && !form.test(given)) throw invalidInput([{ location, message }]);
}

const unitsInMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/** For how long a client waits; for ever if it does not say, or says it in a way that makes no sense. */
export function timeoutMs(protocol: keyof typeof timeouts, given: string | undefined): number {
  if (given === undefined || !timeouts[protocol].form.test(given)) return Number.POSITIVE_INFINITY;
  if (protocol === "connect") return Number(given);
  return Math.ceil(Number(given.slice(0, -1)) * (unitsInMs[given.slice(-1)] as number));
}
