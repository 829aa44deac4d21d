// Loaded first into every process that a command starts: it ends when the command ends, however that came about, with all
// that it started, since it leads a process group. Not even kill -9 of the command leaves one behind. The workers of a
// service load this too, since they inherit the arguments of Node; their channel leads to their service, and keeps them
// alive.
import cluster from "node:cluster";

if (cluster.isPrimary) {
  process.once("disconnect", () => process.kill(-process.pid, "SIGKILL"));
  process.channel?.unref();
}
