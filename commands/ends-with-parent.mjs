// Preloaded into every process that a command starts. The process ends when the command ends, even after kill -9 of the
// command. It leads a process group, so its own child processes end with it. The workers of a service load this file
// too, because they inherit Node's arguments. Their IPC channel connects them to their service, and keeps them alive.
import cluster from "node:cluster";

if (cluster.isPrimary) {
  process.once("disconnect", () => process.kill(-process.pid, "SIGKILL"));
  process.channel?.unref();
}
