import { startBaseline } from "../baselines.js";
import { grpcSide, verifyEach, withOneResponse } from "../grpc-verify.js";
import { createFixture, startLatchkey } from "../latchkey.js";
import { compareThroughput } from "../rounds.js";
import type { Goal, Row } from "../row.js";

/** Latchkey's VerifyKey compared with a grpc-js handler that only returns a fixed response. */
export const grpcVerify = grpcRow({
  name: "grpc-verify",
  title: "gRPC VerifyKey / bare grpc-js handler with the same messages",
  goal: { atLeast: 0.7 },
  baseline: { name: "bare grpc-js", file: "bare-grpc" },
});

/** The same compared with connect-node. This is why connect-node does not serve the gRPC protocol. */
export const grpcConnect = grpcRow({
  name: "grpc-connect",
  title: "gRPC VerifyKey / the same bare handler on connect-node",
  goal: { atLeast: 3 },
  baseline: { name: "bare connect-node", file: "connect-node" },
});

interface GrpcRow {
  readonly name: string;
  readonly title: string;
  readonly goal: Goal;
  readonly baseline: { readonly name: string; readonly file: string };
}

function grpcRow({ name, title, goal, baseline }: GrpcRow): Row {
  return {
    name,
    title,
    async measure(bench) {
      const latchkey = await startLatchkey(bench);
      const fixture = await createFixture(latchkey);
      const exchanges = await verifyEach(latchkey, fixture);
      const fixed = withOneResponse(exchanges);
      const server = await startBaseline(bench, baseline.name, baseline.file, { RESPONSE: fixed.encodedResponse });
      const ours = await grpcSide(bench, { ...latchkey, port: latchkey.grpcPort }, fixture, exchanges);
      const theirs = await grpcSide(bench, server, fixture, fixed.exchanges);
      return [await compareThroughput(bench, { title, goal }, ours, theirs)];
    },
  };
}
