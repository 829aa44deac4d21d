import { expect, it } from "vitest";
import { mintId } from "../../../src/ids.js";
import { prepareResponse } from "../../../src/overload/shed-response.js";

it("a prepared response has the request id of its call everywhere, and is encoded once", () => {
  let encoded = 0;
  const prepared = prepareResponse((requestId) => {
    encoded += 1;
    return Buffer.from(`x-request-id: ${requestId}\r\n\r\n{"requestId":"${requestId}"}`);
  });
  const ids = [mintId("req"), mintId("req")];
  const responses = ids.map(prepared);
  expect(responses.map(String)).toEqual(ids.map((id) => `x-request-id: ${id}\r\n\r\n{"requestId":"${id}"}`));
  expect(encoded).toBe(1);
});
