import { Command, InvalidArgumentError } from "commander";
import { readClientConfig, readDatabaseUrl } from "../config.js";
import { version } from "../observe/version.js";
import { apiCommand } from "./api.js";
import { auditCommand } from "./audit.js";
import { count } from "./command.js";
import { completionCommand } from "./completion.js";
import { identityCommand } from "./identity.js";
import { keyCommand } from "./key.js";
import { limitCommand } from "./limit.js";
import { permissionCommand, roleCommand } from "./permission.js";
import { serveCommand } from "./serve.js";
import { workspaceCommand } from "./workspace.js";

/**
 * The command line. All commands except `serve`, `migrate` and `lease` call a running service over gRPC. They do not
 * load the service's own modules, because that would double the time of a command.
 */
export function createProgram(environment: NodeJS.ProcessEnv): Command {
  const config = readClientConfig(environment);
  return new Command("latchkey")
    .description("API keys for your services")
    .exitOverride()
    .version(version)
    .addCommand(serveCommand(environment))
    .addCommand(
      new Command("migrate")
        .description("migrate the schema of DATABASE_URL to this version, and exit")
        .exitOverride()
        .action(async () => {
          const { migrateDatabase } = await import("../app.js");
          process.stdout.write(`${await migrateDatabase(readDatabaseUrl(environment))}\n`);
        }),
    )
    .addCommand(
      new Command("lease")
        .description("change the lease time of all replicas on DATABASE_URL while they run, and exit")
        .argument("<ms>", "milliseconds, 20 to 5000", leaseTime)
        .exitOverride()
        .action(async (ms: number) => {
          const { changeLeaseTime } = await import("../app.js");
          await changeLeaseTime(readDatabaseUrl(environment), ms);
        }),
    )
    .addCommand(workspaceCommand(config))
    .addCommand(keyCommand(config))
    .addCommand(identityCommand(config))
    .addCommand(apiCommand(config))
    .addCommand(roleCommand(config))
    .addCommand(permissionCommand(config))
    .addCommand(limitCommand(config))
    .addCommand(auditCommand(config))
    .addCommand(completionCommand());
}

/** The range that the database accepts. */
function leaseTime(text: string): number {
  const ms = count(text);
  if (ms < 20 || ms > 5000) throw new InvalidArgumentError("It must be from 20 to 5000.");
  return ms;
}
