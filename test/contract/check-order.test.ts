import { describe, expect, test } from "vitest";
import { readAnswer } from "../support/clients/http.js";
import type { CallerCredential } from "../support/clients/protocol-client.js";
import { operatorKey } from "../support/harness.js";
import { openContract } from "./cases.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol } = contract;

/**
 * The order of API.md, section 5. Each caller has the flaw it is named for and every flaw that is judged after it, as
 * far as they can go together.
 */
const callers: { flaw: string; code: string; credential(scene: Scene): Promise<CallerCredential> }[] = [
  { flaw: "no credential", code: "authentication/missing", credential: async () => [] },
  {
    flaw: "a credential of the wrong form",
    code: "authentication/malformed",
    credential: async () => "lk_wrong",
  },
  {
    flaw: "a disabled workspace",
    code: "authorization/workspace_disabled",
    credential: async (scene) => {
      const key = await scene.newExpiredKey({ enabled: false, scopes: [] });
      const { workspaceId } = scene.home;
      await scene.ok("disableWorkspace", operatorKey, { workspaceId, reason: "ACCOUNT_CLOSURE" });
      return key;
    },
  },
  {
    flaw: "a disabled key",
    code: "authorization/key_disabled",
    credential: (scene) => scene.newExpiredKey({ enabled: false, scopes: [] }),
  },
  {
    flaw: "an expired key",
    code: "authentication/key_expired",
    credential: (scene) => scene.newExpiredKey({ scopes: [] }),
  },
  {
    flaw: "a missing scope",
    code: "authorization/insufficient_permissions",
    credential: async (scene) => (await scene.ok("createKey", scene.home.key, { scopes: ["keys.read"] })).key,
  },
  {
    flaw: "nothing but a bad body",
    code: "application/invalid_input",
    credential: async (scene) => scene.home.key,
  },
];

/** Bodies that are bad in other ways than a field. */
const badBodies: Record<string, { type: string; body: string }> = {
  "broken JSON": { type: "application/json", body: `{"externalId": ` },
  "an array": { type: "application/json", body: "[]" },
  "an unknown field": { type: "application/json", body: `{"externalId":"x","nonsense":1}` },
};

/** Bodies that the HTTP protocol refuses without reading them, hence with a code of their own. */
const unreadBodies: Record<string, { type: string; body: string; code: string }> = {
  "a wrong media type": { type: "text/plain", body: "{}", code: "application/unsupported_media_type" },
  "two megabytes": { type: "application/json", body: " ".repeat(2 ** 21), code: "application/payload_too_large" },
};

describe.each(callers)("of $flaw and every later flaw, $flaw is judged", ({ flaw, code, credential }) => {
  everyProtocol(`${flaw} speaks before a bad field`, async (scene) => {
    const caller = await credential(scene);
    await scene.refused(code, "createIdentity", caller, { externalId: "" });
  });

  for (const [what, { type, body }] of Object.entries(badBodies)) {
    test(`${flaw} speaks before ${what} over HTTP`, async () => {
      expect(await postBody(credential, type, body)).toMatchObject({ ok: false, code });
    });
  }

  for (const [what, { type, body, code: ofBody }] of Object.entries(unreadBodies)) {
    test(`${flaw} speaks before ${what} over HTTP`, async () => {
      const expected = code === "application/invalid_input" ? ofBody : code;
      expect(await postBody(credential, type, body)).toMatchObject({ ok: false, code: expected });
    });
  }

  test(`${flaw} speaks before bytes that are no message over gRPC`, async () => {
    const { grpc } = contract.protocols;
    const caller = await credential(await sceneAt("grpc"));
    const outcome = await grpc.callBytes("createIdentity", caller, Uint8Array.of(0xff, 0xff, 0xff));
    expect(outcome).toMatchObject({ ok: false, code });
  });
});

describe("of a bad body and what it refers to", () => {
  everyProtocol("a bad field speaks before an identity that does not exist", async (scene) => {
    const request = { identityId: "id_nobody", prefix: "not a prefix" };
    await scene.refused("application/invalid_input", "createKey", scene.home.key, request);
  });

  everyProtocol("a scope that cannot be given speaks before an identity that does not exist", async (scene) => {
    const { key } = await scene.ok("createKey", scene.home.key, { scopes: ["keys.create"] });
    const request = { identityId: "id_nobody", scopes: ["*"] };
    await scene.refused("authorization/insufficient_permissions", "createKey", key, request);
  });
});

function sceneAt(name: "grpc" | "http"): Promise<Scene> {
  return openScene(contract.protocols[name], contract.clock);
}

async function postBody(credential: (scene: Scene) => Promise<CallerCredential>, type: string, body: string) {
  const caller = await credential(await sceneAt("http"));
  const headers = new Headers({ "content-type": type });
  if (typeof caller === "string") headers.set("authorization", `Bearer ${caller}`);
  const url = `${contract.app.httpUrl}/v2/identities.createIdentity`;
  return readAnswer(await fetch(url, { method: "POST", headers, body }), false);
}
