// Lets the benchmark control a program in another process, over HTTP: each request runs one of its commands.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

type Command = (seconds: number) => Promise<unknown>;

/** Serves the commands of a program, and prints their address. */
export async function serveCommands(commands: Readonly<Record<string, Command>>): Promise<void> {
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://localhost");
    try {
      const result = await commands[pathname.slice(1)]?.(Number(searchParams.get("seconds")));
      response.end(JSON.stringify(result ?? {}));
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  process.stdout.write(`ready on 127.0.0.1:${(server.address() as AddressInfo).port}\n`);
}

/** Runs a command of a program, and returns its result. */
export async function runCommand<T>(port: number, command: string, seconds = 0): Promise<T> {
  const response = await fetch(`http://127.0.0.1:${port}/${command}?seconds=${seconds}`);
  if (!response.ok) throw new Error(`${command} failed: ${await response.text()}`);
  return (await response.json()) as T;
}
