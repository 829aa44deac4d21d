import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { createClient } from "../../../src/client/client.js";
import { createProtobufClient } from "../../../src/client/protobuf.js";
import { openVerifier, type VerifierOptions } from "../../../src/verifier/verifier.js";

const url = "https://keys.example.com";

/** Of a verifier whose service cannot be reached. */
const errorOfVerifier = (options: Partial<VerifierOptions>): Promise<unknown> =>
  openVerifier({ address: "http://127.0.0.1:1", key: "lk_any", openTimeoutMs: 100, ...options }).then(
    () => expect.fail("the verifier was opened"),
    (error: unknown) => error,
  );

/** The error of each entry of the package, for this address. */
async function errorsOfUrl(url: string): Promise<unknown[]> {
  const errorOf = (create: () => unknown) => {
    try {
      create();
    } catch (error) {
      return error;
    }
    return expect.fail(`${url} was accepted`);
  };
  return [
    errorOf(() => createClient({ url, key: "lk_any" })),
    errorOf(() => createProtobufClient({ url, key: "lk_any" })),
    await errorOfVerifier({ address: url }),
    await errorOfVerifier({ address: ["http://127.0.0.1:1", url] }),
  ];
}

describe("the address of a service", () => {
  it.each(["https://user:hunter2@keys.example.com", "https://hunter2@keys.example.com/api", "http://:hunter2@a:1"])(
    "with a user name or a password is refused, and the error does not contain them: %s",
    async (url) => {
      for (const error of await errorsOfUrl(url)) {
        expect(error).toMatchObject({
          name: "TypeError",
          message: expect.stringContaining("must not have a user name or a password"),
        });
        expect(inspect(error, { depth: 10 })).not.toContain("hunter2");
      }
    },
  );

  it.each([`${url}?`, `${url}/api?version=2`, `${url}#`, `${url}/#top`])(
    "with a query or a fragment is refused, because paths are added at its end: %s",
    async (url) => {
      for (const error of await errorsOfUrl(url)) {
        expect(error).toMatchObject({
          name: "TypeError",
          message: expect.stringContaining("must not have a query or a fragment"),
        });
      }
    },
  );

  it("may have a path", async () => {
    const called: unknown[] = [];
    const fetch = async (address: unknown) => {
      called.push(address);
      return new Response('{"data": {}}');
    };
    await createClient({ url: `${url}/api/`, key: "lk_any", fetch }).keys.getKey({ keyId: "key_1" });
    expect(called).toEqual([`${url}/api/v2/keys.getKey`]);
    createProtobufClient({ url: `${url}/api/`, key: "lk_any" });
    expect(await errorOfVerifier({ address: "http://127.0.0.1:1/api" })).not.toBeInstanceOf(TypeError);
  });
});

it("a key from an unset environment variable is refused, as an empty one is", async () => {
  for (const key of ["", undefined as unknown as string]) {
    const message = "The key must be printable ASCII";
    expect(() => createClient({ url, key })).toThrow(message);
    expect(() => createProtobufClient({ url, key })).toThrow(message);
    expect(await errorOfVerifier({ key })).toMatchObject({ message: expect.stringContaining(message) });
  }
});

describe("a timeout that no timer can have is refused by its name", () => {
  const tooLong = 2 ** 31;
  const client = createClient({ url, key: "lk_any", fetch: async () => new Response('{"data": {}}') });

  it.each([tooLong, Number.POSITIVE_INFINITY, Number.NaN, -1, 0.5])("%s", async (timeoutMs) => {
    const error = { name: "RangeError", message: "The timeoutMs must be an integer from 0 to 2147483647." };
    expect(() => createClient({ url, key: "lk_any", timeoutMs })).toThrow(expect.objectContaining(error));
    await expect(client.keys.getKey({ keyId: "key_1" }, { timeoutMs })).rejects.toMatchObject(error);
    expect(await errorOfVerifier({ openTimeoutMs: timeoutMs })).toMatchObject({
      name: "RangeError",
      message: "The openTimeoutMs must be an integer from 0 to 2147483647.",
    });
    expect(await errorOfVerifier({ timeoutMs })).toMatchObject({
      name: "RangeError",
      message: "The timeoutMs must be an integer from 0 to 99999999.",
    });
  });

  it("the longest one is accepted", async () => {
    expect(await client.keys.getKey({ keyId: "key_1" }, { timeoutMs: tooLong - 1 })).toEqual({});
  });
});

it("a limit of the memory of a verifier that is not a positive integer is refused by its name", async () => {
  for (const maxBytes of [0, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    expect(await errorOfVerifier({ maxBytes })).toMatchObject({
      name: "RangeError",
      message: expect.stringMatching(/^The maxBytes must be an integer from 1 to /),
    });
  }
});
