import { describe, expect, test } from "vitest";
import type { CallerCredential } from "../support/clients/headers.js";
import { readResponse } from "../support/clients/http.js";
import { operatorKey } from "../support/harness.js";
import { openContract } from "./cases.js";
import { openScene, type Scene } from "./scene.js";

const contract = openContract();
const { everyProtocol } = contract;

/**
 * The check order of API.md, section 5. Each caller fails the check it is named for and, as far as they can be
 * combined, every check after it.
 */
const callers: { flaw: string; code: string; credential(scene: Scene): Promise<CallerCredential> }[] = [
  { flaw: "no credential", code: "authentication/missing", credential: async () => [] },
  {
    flaw: "a malformed credential",
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
    flaw: "only an invalid body",
    code: "application/invalid_input",
    credential: async (scene) => scene.home.key,
  },
];

/** Bodies that are invalid as a whole, not in one field. */
const badBodies: Record<string, { type: string; body: string }> = {
  "broken JSON": { type: "application/json", body: `{"externalId": ` },
  "an array": { type: "application/json", body: "[]" },
  "an unknown field": { type: "application/json", body: `{"externalId":"x","nonsense":1}` },
};

/** Bodies that the HTTP gateway refuses without reading them, hence with their own error code. */
const unreadBodies: Record<string, { type: string; body: string; code: string }> = {
  "a wrong media type": { type: "text/plain", body: "{}", code: "application/unsupported_media_type" },
  "two megabytes": { type: "application/json", body: " ".repeat(2 ** 21), code: "application/payload_too_large" },
};

describe.each(callers)("check order: $flaw is reported before every later check", ({ flaw, code, credential }) => {
  everyProtocol(`${flaw} is reported before an invalid field`, async (scene) => {
    const caller = await credential(scene);
    await scene.refused(code, "createIdentity", caller, { externalId: "" });
  });

  for (const [what, { type, body }] of Object.entries(badBodies)) {
    test(`${flaw} is reported before ${what} over HTTP`, async () => {
      expect(await postBody(credential, type, body)).toMatchObject({ ok: false, code });
    });
  }

  for (const [what, { type, body, code: ofBody }] of Object.entries(unreadBodies)) {
    test(`${flaw} is reported before ${what} over HTTP`, async () => {
      const expected = code === "application/invalid_input" ? ofBody : code;
      expect(await postBody(credential, type, body)).toMatchObject({ ok: false, code: expected });
    });
  }

  test(`${flaw} is reported before an undecodable message over gRPC`, async () => {
    const { grpc } = contract.protocols;
    const caller = await credential(await sceneAt("grpc"));
    const outcome = await grpc.callBytes("createIdentity", caller, Uint8Array.of(0xff, 0xff, 0xff));
    expect(outcome).toMatchObject({ ok: false, code });
  });
});

describe("check order of the body", () => {
  everyProtocol("an invalid field is reported before an identity that does not exist", async (scene) => {
    const request = { identityId: "id_nobody", prefix: "not a prefix" };
    await scene.refused("application/invalid_input", "createKey", scene.home.key, request);
  });

  everyProtocol("a scope that cannot be granted is reported before an identity that does not exist", async (scene) => {
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
  return readResponse(await fetch(url, { method: "POST", headers, body }), false);
}
