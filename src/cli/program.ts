import { Command } from "commander";
import { migrateDatabase } from "../app.js";
import { readClientConfig, readConfig } from "../config.js";
import { serve } from "../serve.js";
import { auditCommand } from "./audit.js";
import { identityCommand } from "./identity.js";
import { keyCommand } from "./key.js";
import { workspaceCommand } from "./workspace.js";

/** The command line. Everything but `serve` and `migrate` talks to a running service over gRPC. */
export function createProgram(environment: NodeJS.ProcessEnv): Command {
  const config = readClientConfig(environment);
  return new Command("latchkey")
    .description("API keys for your services")
    .exitOverride()
    .addCommand(
      new Command("serve")
        .description("run the service (the default)")
        .exitOverride()
        .action(() => serve(readConfig(environment))),
    )
    .addCommand(
      new Command("migrate")
        .description("bring the schema of DATABASE_URL up to date, and end")
        .exitOverride()
        .action(() => migrateDatabase(readConfig(environment).databaseUrl)),
    )
    .addCommand(workspaceCommand(config))
    .addCommand(keyCommand(config))
    .addCommand(identityCommand(config))
    .addCommand(auditCommand(config));
}
