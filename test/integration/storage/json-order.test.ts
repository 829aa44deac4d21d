import { expect, it } from "vitest";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { openFileApp } from "../../support/file-service.js";

const app = await openFileApp();

it("meta is returned byte for byte, with its JSON keys in their original order", async () => {
  const { key } = await createWorkspace(app.httpUrl);
  const meta = '{"zebra":1,"a":{"y":[1.5,null],"x":"ü"},"middle":true}';
  const post = (path: string, body: string) =>
    fetch(app.httpUrl + path, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body,
    });
  await post("/v2/identities.createIdentity", `{"externalId":"u","meta":${meta}}`);
  expect(await (await post("/v1/identities.getIdentity", '{"externalId":"u"}')).text()).toContain(`"meta":${meta}`);
});
