import { Command, InvalidArgumentError } from "commander";
import { readClientConfig, readConfig } from "../config.js";
import { auditCommand } from "./audit.js";
import { count } from "./command.js";
import { identityCommand } from "./identity.js";
import { keyCommand } from "./key.js";
import { workspaceCommand } from "./workspace.js";

/**
 * The command line. Everything but `serve`, `migrate` and `lease` talks to a running service over gRPC, and so does not
 * load the service itself: that would double the time that a command takes.
 */
export function createProgram(environment: NodeJS.ProcessEnv): Command {
  const config = readClientConfig(environment);
  return new Command("latchkey")
    .description("API keys for your services")
    .exitOverride()
    .addCommand(
      new Command("serve")
        .description("run the service (the default)")
        .exitOverride()
        .action(async () => {
          const config = readConfig(environment);
          const { serve } = await import("../process/serve.js");
          await serve(config);
        }),
    )
    .addCommand(
      new Command("migrate")
        .description("bring the schema of DATABASE_URL up to date, and end")
        .exitOverride()
        .action(async () => {
          const { databaseUrl } = readConfig(environment);
          const { migrateDatabase } = await import("../app.js");
          await migrateDatabase(databaseUrl);
        }),
    )
    .addCommand(
      new Command("lease")
        .description("change the lease time of the replicas on DATABASE_URL while they run, and end")
        .argument("<ms>", "in milliseconds, 20 to 5000", leaseTime)
        .exitOverride()
        .action(async (ms: number) => {
          const { databaseUrl } = readConfig(environment);
          const { changeLeaseTime } = await import("../app.js");
          await changeLeaseTime(databaseUrl, ms);
        }),
    )
    .addCommand(workspaceCommand(config))
    .addCommand(keyCommand(config))
    .addCommand(identityCommand(config))
    .addCommand(auditCommand(config));
}

/** What the database takes. */
function leaseTime(text: string): number {
  const ms = count(text);
  if (ms < 20 || ms > 5000) throw new InvalidArgumentError("It must be from 20 to 5000.");
  return ms;
}
