// Runs Redis in a separate process that can be frozen and killed. Sends its address once it is ready.
import { pathToFileURL } from "node:url";

const [, , module, folder] = process.argv;
const { openValkey } = await import(pathToFileURL(module).href);
const { url, start } = await openValkey(folder, process.env.PATH ?? "");
await start();
process.send({ url });
