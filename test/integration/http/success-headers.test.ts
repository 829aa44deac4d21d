import { once } from "node:events";
import { Agent, type IncomingMessage, request } from "node:http";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { expectSuccess, post, send, sendBytes } from "../../support/clients/http-requests.js";
import { openSocket, postText, readUntilQuiet, statusOf } from "../../support/clients/sockets.js";
import { openFileService } from "../../support/file-service.js";

const { origin, key } = await openFileService();
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
afterAll(() => agent.destroy());

/** Creates a key with a meta of this many characters; returns the response of getKey on a keep-alive connection. */
async function getKey(metaLength: number, name = "build server") {
  const meta = { text: "x".repeat(metaLength) };
  const { keyId } = expectSuccess(await post(origin, "/v2/keys.createKey", key, { name, meta })) as { keyId: string };
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const outgoing = request(`${origin}/v2/keys.getKey`, { method: "POST", agent, headers });
  outgoing.end(JSON.stringify({ keyId }));
  const [incoming] = (await once(outgoing, "response")) as [IncomingMessage];
  const bytes = Buffer.concat(await incoming.toArray());
  return { incoming, bytes, data: JSON.parse(bytes.toString()).data };
}

/** The names of the headers in their order, with the values that do not differ from response to response. */
function headersOf({ rawHeaders }: IncomingMessage): [string, string | undefined][] {
  const pairs = rawHeaders.flatMap((name, index) => (index % 2 === 0 ? [[name, rawHeaders[index + 1]] as const] : []));
  const differing = new Set(["x-request-id", "content-length", "Date"]);
  return pairs.map(([name, value]) => [name, differing.has(name) ? undefined : value]);
}

describe("a successful response on a keep-alive connection", () => {
  it("has the headers that Node sends, in the same order, whether it is small or large", async () => {
    const small = await getKey(10);
    const large = await getKey(10_000);
    expect(small.data.meta.text).toHaveLength(10);
    expect(large.data.meta.text).toHaveLength(10_000);
    expect(headersOf(small.incoming)).toEqual(headersOf(large.incoming));
    expect(headersOf(small.incoming)).toEqual(
      expect.arrayContaining([
        ["Connection", "keep-alive"],
        ["Keep-Alive", "timeout=72"],
      ]),
    );
  });

  it("has the present time as its date, also after a second", async () => {
    for (let response = 0; response < 2; response += 1) {
      const before = Date.now() - 1_000; // a Date has whole seconds
      const { incoming } = await getKey(10);
      const date = Date.parse(`${incoming.headers.date}`);
      expect(date).toBeGreaterThan(before);
      expect(date).toBeLessThanOrEqual(Date.now());
      await new Promise((resolve) => setTimeout(resolve, 1_100));
    }
  });

  it.each(["build server", "Zoë", "漢字", "🔑"])("has a Content-Length in bytes: %s", async (name) => {
    const { incoming, bytes, data } = await getKey(10, name);
    expect(data.name).toBe(name);
    expect(incoming.headers["content-length"]).toBe(`${bytes.length}`);
  });
});

describe("a successful response closes its connection", () => {
  it.each([
    ["that the client asks for", "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"],
    ["of HTTP/1.0", "GET /livez HTTP/1.0\r\n\r\n"],
  ])("if it is one %s", async (_name, bytes) => {
    const { status, headers, text } = await sendBytes(origin, bytes);
    expect(status).toBe(200);
    expect(headers.connection).toBe("close");
    expect(JSON.parse(text).data).toEqual({ status: "alive" });
  });
});

it("a response to HEAD has the headers of the response to GET, and no body", async () => {
  const headers = { connection: "keep-alive" };
  const get = await send(origin, "/livez", { method: "GET", headers });
  const head = await send(origin, "/livez", { method: "HEAD", headers });
  expect(Object.keys(head.headers)).toEqual(Object.keys(get.headers));
  expect(head.headers["content-length"]).toBe(get.headers["content-length"]);
  expect(head.text).toBe("");
});

it("a client that closes its side right after a request gets the response", async () => {
  expect((await post(origin, "/v2/keys.verifyKey", key, { key })).status).toBe(200); // the key is cached now
  const socket = openSocket(origin);
  onTestFinished(() => void socket.destroy());
  socket.end(postText("/v2/keys.verifyKey", key, JSON.stringify({ key }), { connection: "keep-alive" }));
  const text = await readUntilQuiet(socket);
  expect(statusOf(text)).toBe(200);
  expect(text).toContain('"valid":true');
});
