import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import type { CallResult } from "../../support/clients/low-cost/client.js";
import { prepare, type Request } from "../../support/clients/low-cost/request.js";
import type { Observation } from "./checker.js";
import {
  type KeySubject,
  observationsOfCaller,
  observationsOfKey,
  toggled,
  type WorkspaceSubject,
} from "./subjects.js";

/** A call that clients repeat, and how to interpret its result. */
export interface Call {
  readonly request: Request;
  /** Without observations: a correct service never returns this result. */
  read(result: CallResult & { kind: "success" | "refused" }): Reading;
}

/** What a result shows about the subjects. */
export interface Reading {
  /** `accepted`, an error code of the catalogue, or a verification code other than VALID. */
  readonly outcome: string;
  readonly observations: readonly Observation[] | undefined;
}

/**
 * The calls that show the state of a subject. A call that is listed several times is made more often. One is a change:
 * it may wait for a connection or a lock while its caller is revoked, and then must not take effect.
 */
export function callsOf(about: WorkspaceSubject | KeySubject): Call[] {
  const list = plainCall(about, prepare("listKeys", about.secret, { limit: 1 }));
  const create = creation(about);
  if (about.kind === "workspace") {
    const verify = verification(about, about, false);
    const get = plainCall(about, prepare("getIdentity", about.secret, { externalId: "nobody" }));
    return [...Array<Call>(8).fill(verify), list, get, create];
  }
  const verify = verification(about.keyWorkspace, about, false);
  const verifyGrant = verification(about.keyWorkspace, about, true);
  const verifyItself = verification(about, about, false);
  return [
    verify,
    verify,
    verify,
    verifyGrant,
    verifyGrant,
    verifyGrant,
    verifyItself,
    verifyItself,
    verifyItself,
    list,
    create,
  ];
}

/** The calls that a subject sends with a delayed body. Half of them are changes. */
export function delayedCallsOf(about: WorkspaceSubject | KeySubject): Call[] {
  const list = plainCall(about, prepare("listKeys", about.secret, { limit: 1 }));
  const create = creation(about);
  return [verification(about, about, false), list, create, create];
}

function creation(caller: WorkspaceSubject | KeySubject): Call {
  return plainCall(caller, prepare("createKey", caller.secret, { name: "created by a subject" }));
}

/** A call whose result depends on its caller only. */
function plainCall(caller: WorkspaceSubject | KeySubject, request: Request): Call {
  return {
    request,
    read(result) {
      const outcome = isAccepted(result) ? "accepted" : result.code;
      return { outcome, observations: observationsOfCaller(caller, outcome, false) };
    },
  };
}

/**
 * The caller needs the toggled scope to verify at all.
 *
 * @param requiresPermission whether the query requires the permission of the same name
 */
function verification(
  caller: WorkspaceSubject | KeySubject,
  presented: WorkspaceSubject | KeySubject,
  requiresPermission: boolean,
): Call {
  const query = { key: presented.secret, ...(requiresPermission ? { permissions: toggled } : {}) };
  return {
    request: prepare("verifyKey", caller.secret, query),
    read(result) {
      if (!isAccepted(result))
        return { outcome: result.code, observations: observationsOfCaller(caller, result.code, true) };
      const code = readVerificationCode(result.kind === "success" ? result.fields["code"] : undefined);
      const seen = observationsOfKey(presented.subject, code, requiresPermission);
      const observations = seen && [...(observationsOfCaller(caller, "accepted", true) ?? []), ...seen];
      return { outcome: code === "VALID" ? "accepted" : code, observations };
    },
  };
}

/** The service looks up an identity only after it has authorized the caller, so "not found" counts as accepted. */
function isAccepted(result: CallResult & { kind: "success" | "refused" }): result is CallResult & { kind: "success" } {
  return result.kind === "success" || result.code === "identity_not_found";
}

/** HTTP returns the name, Connect the name with its prefix, and gRPC the number. */
function readVerificationCode(code: unknown): string {
  return typeof code === "number"
    ? (VerificationCode[code] ?? `${code}`)
    : `${code}`.replace(/^VERIFICATION_CODE_/, "");
}
