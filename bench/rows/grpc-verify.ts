import { grpcSide, verifyEach, withOneAnswer } from "../grpc-verify.js";
import { createScene, startLatchkey } from "../latchkey.js";
import { compareThroughput } from "../rounds.js";
import type { Goal, Row } from "../row.js";
import { startSide } from "../sides.js";

/** Latchkey's VerifyKey against a handler that does nothing but answer, on grpc-js as Latchkey itself. */
export const grpcVerify = grpcRow({
  name: "grpc-verify",
  title: "gRPC VerifyKey / bare grpc-js handler with the same messages",
  goal: { atLeast: 0.7 },
  opponent: { name: "bare grpc-js", file: "bare-grpc" },
});

/** The same against connect-node: why the gRPC protocol is not served by it. */
export const grpcConnect = grpcRow({
  name: "grpc-connect",
  title: "gRPC VerifyKey / the same bare handler on connect-node",
  goal: { atLeast: 3 },
  opponent: { name: "bare connect-node", file: "connect-node" },
});

interface GrpcRow {
  readonly name: string;
  readonly title: string;
  readonly goal: Goal;
  readonly opponent: { readonly name: string; readonly file: string };
}

function grpcRow({ name, title, goal, opponent }: GrpcRow): Row {
  return {
    name,
    title,
    async measure(bench) {
      const latchkey = await startLatchkey(bench);
      const scene = await createScene(latchkey);
      const exchanges = await verifyEach(latchkey, scene);
      const bare = withOneAnswer(exchanges);
      const server = await startSide(bench, opponent.name, opponent.file, { ANSWER: bare.answer });
      const ours = await grpcSide(bench, { ...latchkey, port: latchkey.grpcPort }, scene, exchanges);
      const theirs = await grpcSide(bench, server, scene, bare.exchanges);
      return [await compareThroughput(bench, { title, goal }, ours, theirs)];
    },
  };
}
