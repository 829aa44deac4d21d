// A Redis in a process of its own, so that it can be frozen and killed. Says where it is, once it answers.
import { pathToFileURL } from "node:url";

const [, , module, folder] = process.argv;
const { openValkey } = await import(pathToFileURL(module).href);
const { url, start } = await openValkey(folder, process.env.PATH ?? "");
await start();
process.send({ url });
