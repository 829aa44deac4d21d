// Loaded first into every server under load: it ends when the benchmark ends, however that came about, with all that it
// started, since it leads a process group. Its workers load this too, since they inherit the arguments of Node; their
// channel leads to their server, and keeps them alive.
import cluster from "node:cluster";

if (cluster.isPrimary) {
  process.once("disconnect", () => process.kill(-process.pid, "SIGKILL"));
  process.channel?.unref();
}
