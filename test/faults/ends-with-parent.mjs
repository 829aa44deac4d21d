// Loaded first into every process of the laboratory: it ends when the laboratory ends, however that came about, with
// all that it started, since it leads a process group. Not even kill -9 of the laboratory leaves a replica behind.
process.once("disconnect", () => process.kill(-process.pid, "SIGKILL"));
process.channel?.unref();
