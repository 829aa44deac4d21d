import type { CallRequest } from "../support/clients/protocol-client.js";
import type { KeyResponse, ResponseData } from "../support/responses.js";
import type { Scene } from "./scene.js";

/** A day, in milliseconds. */
export const day = 86_400_000;

/** A key without `lastUsedAt`, which is written in batches, so that the time of its appearance is not deterministic. */
export type Settings = Omit<KeyResponse, "lastUsedAt">;

export function settingsOf({ lastUsedAt: _, ...settings }: KeyResponse): Settings {
  return settings;
}

/** The key as getKey returns it to the workspace's first key. */
export async function readSettings({ ok, home }: Scene, keyId: string): Promise<Settings> {
  return settingsOf(await ok("getKey", home.key, { keyId }));
}

/** All keys of the workspace. */
export async function readAllSettings({ ok, home }: Scene): Promise<Settings[]> {
  return (await ok("listKeys", home.key)).map(settingsOf);
}

/** A key with every setting set; it belongs to the identity `user_1`. */
export function createFullKey(
  { ok, home, clock }: Scene,
  request: CallRequest = {},
): Promise<ResponseData["createKey"]> {
  return ok("createKey", home.key, {
    name: "first name",
    prefix: "acme_live",
    externalId: "user_1",
    scopes: ["keys.verify", "identities.*"],
    permissions: ["documents.read", "documents.write"],
    meta: { plan: "pro", seats: [1, 2] },
    expires: clock.now() + 30 * day,
    enabled: true,
    ...request,
  });
}
