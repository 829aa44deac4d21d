import { expect, it, onTestFinished, vi } from "vitest";
import { exitCodeOf } from "../../../src/cli/exit-codes.js";
import { createProgram } from "../../../src/cli/program.js";

/** Runs a command that must be refused before it calls the service. */
async function refusal(args: string): Promise<{ exitCode: number; message: string }> {
  let message = "";
  const write = vi.spyOn(process.stderr, "write").mockImplementation((text) => {
    message += text;
    return true;
  });
  onTestFinished(() => write.mockRestore());
  // Without a fault in the usage, this would be another error: the credential is missing.
  const program = createProgram({ DATA_DIR: "/nonexistent" });
  const error = await program.parseAsync(args.split(" "), { from: "user" }).then(
    () => expect.fail("the command succeeded"),
    (error: unknown) => error,
  );
  write.mockRestore();
  return { exitCode: exitCodeOf(error), message };
}

it.each([
  ["key create --external-id user_1 --identity-id id_1", "option '--identity-id <id>' cannot be used with"],
  ["key update key_1 --identity-id id_1 --external-id user_1", "option '--identity-id <id>' cannot be used with"],
  ["key update key_1 --name ci --clear name", "option '--clear name' cannot be used with a flag that sets name"],
  ["key update key_1 --clear scopes --clear meta --meta {}", "'--clear meta' cannot be used with"],
  ["key update key_1 --clear name --clear roles --role editor", "'--clear roles' cannot be used with"],
  ["key update key_1 --clear identity --external-id user_1", "'--clear identity' cannot be used with"],
  ["key update key_1 --clear identity --identity-id id_1", "'--clear identity' cannot be used with"],
  ["key update key_1 --clear credits --credits 5", "'--clear credits' cannot be used with"],
  ["key update key_1 --clear credits --refill 5/daily", "'--clear credits' cannot be used with"],
  ["key update key_1 --clear refill --refill 5/daily", "'--clear refill' cannot be used with"],
  ["identity update user_1 --clear-ratelimits --ratelimit a=1/1m", "'--clear-ratelimits' cannot be used with"],
])("flags that contradict each other are wrong usage: %s", async (args, message) => {
  expect(await refusal(args)).toEqual({ exitCode: 2, message: expect.stringContaining(message) });
});

it("a setting can be set while another one is cleared, also a part of it", async () => {
  for (const args of ["--name ci --clear meta", "--credits 5 --clear refill", "--external-id user_1 --clear roles"]) {
    expect((await refusal(`key update key_1 ${args}`)).exitCode, args).toBe(1);
  }
});

const digits = "9".repeat(23);

it.each([
  ["key list --limit 99999999999", "from 1 to 100"],
  ["limit list-overrides email.send --limit 0", "from 1 to 100"],
  [`key reroll key_1 --grace ${digits}`, "at most 9007199254740991"],
  [`key credits key_1 --set ${digits}`, "at most 9007199254740991"],
  [`key create --credits ${"9".repeat(400)}`, "at most 9007199254740991"],
  [`key create --ratelimit requests=${digits}/1m`, "at most 9007199254740991"],
  ["key create --ratelimit requests=1/99999999999999w", "at most 9007199254740991"],
  [`limit use email.send user_1 ${digits}/1m`, "at most 9007199254740991"],
  [`key create --refill ${digits}/daily`, "at most 9007199254740991"],
  ["key create --refill 1/monthly:99999999999", "such as 1000/daily or 1000/monthly:31"],
])("a number that a request cannot have is wrong usage: %s", async (args, message) => {
  expect(await refusal(args)).toEqual({ exitCode: 2, message: expect.stringContaining(message) });
});
