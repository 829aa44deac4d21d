import { VerificationCode } from "../../../gen/latchkey/v1/keys_service_pb.js";
import type { Answer } from "./answer.js";
import type { Observation } from "./checker.js";
import { prepare, type Request } from "./request.js";
import { type KeySubject, seenOfCaller, seenOfKey, toggled, type WorkspaceSubject } from "./subjects.js";

/** A call that clients make again and again, and how to read its answers. */
export interface Call {
  readonly request: Request;
  /** What an answer says, in a word, and what it tells; no observations if it should never be given. */
  read(answer: Answer & { kind: "success" | "refused" }): Reading;
}

export interface Reading {
  /** `accepted`, a code of the catalogue, or a verdict other than VALID. */
  readonly word: string;
  readonly observations: readonly Observation[] | undefined;
}

/** The calls that tell about a subject. Those that are listed more than once are made more often. */
export function callsOf(about: WorkspaceSubject | KeySubject): Call[] {
  const list = plainCall(about, prepare("listKeys", about.secret, { limit: 1 }));
  if (about.kind === "workspace") {
    const verify = verification(about, about, false);
    const look = plainCall(about, prepare("getIdentity", about.secret, { externalId: "nobody" }));
    return [...Array<Call>(8).fill(verify), list, look];
  }
  const verify = verification(about.home, about, false);
  const verifyGrant = verification(about.home, about, true);
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
  ];
}

/** The calls of a subject whose bodies are held back: half of them are changes. */
export function lateCallsOf(about: WorkspaceSubject | KeySubject): Call[] {
  const list = plainCall(about, prepare("listKeys", about.secret, { limit: 1 }));
  const create = plainCall(about, prepare("createKey", about.secret, { name: "late" }));
  return [verification(about, about, false), list, create, create];
}

/** A call that tells about its caller alone. */
function plainCall(caller: WorkspaceSubject | KeySubject, request: Request): Call {
  return {
    request,
    read(answer) {
      const word = admitted(answer) ? "accepted" : answer.code;
      return { word, observations: seenOfCaller(caller, word, false) };
    },
  };
}

/** The caller needs the toggled scope to verify at all; `asked` makes it ask for the permission of the same name. */
function verification(
  caller: WorkspaceSubject | KeySubject,
  presented: WorkspaceSubject | KeySubject,
  asked: boolean,
): Call {
  const question = { key: presented.secret, ...(asked ? { permissions: toggled } : {}) };
  return {
    request: prepare("verifyKey", caller.secret, question),
    read(answer) {
      if (!admitted(answer)) return { word: answer.code, observations: seenOfCaller(caller, answer.code, true) };
      const verdict = readVerdict(answer.kind === "success" ? answer.fields["code"] : undefined);
      const seen = seenOfKey(presented.subject, verdict, asked);
      const observations = seen && [...(seenOfCaller(caller, "accepted", true) ?? []), ...seen];
      return { word: verdict === "VALID" ? "accepted" : verdict, observations };
    },
  };
}

/** Whoever is told that something is not there has been let in. */
function admitted(answer: Answer & { kind: "success" | "refused" }): answer is Answer & { kind: "success" } {
  return answer.kind === "success" || answer.code === "identity_not_found";
}

/** HTTP sends the name, Connect with its prefix, and gRPC the number. */
function readVerdict(code: unknown): string {
  return typeof code === "number"
    ? (VerificationCode[code] ?? `${code}`)
    : `${code}`.replace(/^VERIFICATION_CODE_/, "");
}
