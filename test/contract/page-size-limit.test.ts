import { expect, test } from "vitest";
import { openContract } from "./cases.js";
import { openScene } from "./scene.js";

const contract = openContract();

/** 16 KiB as JSON, and more than five times as much as protobuf. */
const meta = { a: Array(8188).fill(1) };
const count = 50;

test("list pages stay below the default message limit of gRPC clients (4 MiB), over HTTP too", async () => {
  const { ok, home } = await openScene(contract.protocols.http, contract.clock);
  await ok("createIdentity", home.key, { externalId: "user_1", meta });
  const createKey = () => ok("createKey", home.key, { externalId: "user_1", meta });
  await Promise.all(Array.from({ length: count }, createKey));

  for (const [list, rows] of [
    ["listKeys", count + 1],
    ["listAuditEvents", count + 3],
  ] as const) {
    const lengths = new Map<string, number[]>();
    for (const name of ["grpc", "http"] as const) {
      const scene = await openScene(contract.protocols[name], contract.clock);
      const pages: number[] = [];
      let cursor: string | undefined;
      do {
        const { data, pagination } = await scene.page(list, home.key, cursor ? { cursor } : {});
        pages.push(data.length);
        cursor = pagination?.cursor;
      } while (cursor !== undefined);
      lengths.set(name, pages);
    }
    const pages = lengths.get("grpc") ?? [];
    expect(pages.reduce((sum, length) => sum + length, 0)).toBe(rows);
    // More than one page, and no page smaller than necessary: a row has at most 200 kB.
    expect(pages.length).toBeGreaterThan(1);
    for (const length of pages.slice(0, -1)) expect(length).toBeGreaterThanOrEqual(20);
    expect(lengths.get("http")).toEqual(pages);
  }
});
