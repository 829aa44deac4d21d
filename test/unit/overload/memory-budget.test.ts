import { EventEmitter } from "node:events";
import { describe, expect, it } from "vitest";
import { createMemoryBudget } from "../../../src/overload/memory-budget.js";
import type { Bottleneck } from "../../../src/overload/shed-counter.js";

const limits = { totalBytes: 1_000, connectionBytes: 600, tenantBytes: 500, smallBytes: 10 };

function createBudget() {
  const shed: Bottleneck[] = [];
  const counts = { event_loop: 0, database: 0, connections: 0, memory: 0 };
  const budget = createMemoryBudget(limits, { counts, count: (bottleneck) => shed.push(bottleneck) });
  return { budget, shed };
}

describe("the memory budget", () => {
  it("releases all reservations of a connection when its socket closes", () => {
    const { budget } = createBudget();
    const socket = new EventEmitter();
    const account = budget.accountOf(socket);
    account.reserve(200, "ws_1");
    account.reserve(100)?.grow(50);
    expect(budget.reserved).toBe(350);
    socket.emit("close");
    expect([budget.reserved, account.reserved]).toEqual([0, 0]);
    expect(account.reserve(1)).toBeUndefined();
  });

  it("releases a reservation once, however often release is called, and lets it not grow afterwards", () => {
    const { budget } = createBudget();
    const account = budget.accountOf(new EventEmitter());
    const kept = account.reserve(100, "ws_1");
    const released = account.reserve(200, "ws_1");
    released?.release();
    released?.release();
    expect(released?.grow(10)).toBe(false);
    expect([budget.reserved, released?.bytes, kept?.bytes]).toEqual([100, 0, 100]);
  });

  it("shrinks a reservation, and not one that was released", () => {
    const { budget } = createBudget();
    const account = budget.accountOf(new EventEmitter());
    const reservation = account.reserve(500, "ws_1");
    reservation?.shrink(400);
    expect([budget.reserved, account.reserved, reservation?.bytes]).toEqual([100, 100, 100]);
    expect(account.reserve(400, "ws_1")).toBeDefined();
    reservation?.release();
    reservation?.shrink(50);
    expect(budget.reserved).toBe(400);
  });

  it("limits each connection, each tenant over its connections, and the process, and counts refusals as shed", () => {
    const { budget, shed } = createBudget();
    const accounts = [1, 2, 3].map(() => budget.accountOf(new EventEmitter()));
    const [first, second, third] = accounts;
    expect(first?.reserve(601)).toBeUndefined();
    expect(first?.reserve(300, "ws_1")).toBeDefined();
    expect(second?.reserve(201, "ws_1")).toBeUndefined();
    expect(second?.reserve(500, "ws_2")).toBeDefined();
    expect(third?.reserve(201, "ws_3")).toBeUndefined();
    expect(shed).toEqual(["memory", "memory", "memory"]);
    expect(budget.reserved).toBe(800);
  });

  it("serves small accounts when the total is exhausted, up to a limit of their own", () => {
    const { budget } = createBudget();
    for (const tenant of ["ws_1", "ws_2"]) budget.accountOf(new EventEmitter()).reserve(500, tenant);
    const small = Array.from({ length: 101 }, (_, index) =>
      budget.accountOf(new EventEmitter()).reserve(10, `ws_of_${index}`),
    );
    expect(small.filter((reservation) => reservation !== undefined)).toHaveLength(100);
    expect(budget.accountOf(new EventEmitter()).reserve(11)).toBeUndefined();
  });

  it("reserves nothing for a closed connection, whether or not it had an account", () => {
    const { budget, shed } = createBudget();
    const socket = Object.assign(new EventEmitter(), { destroyed: true });
    expect(budget.accountOf(socket).reserve(1)).toBeUndefined();
    expect([budget.reserved, shed.length]).toEqual([0, 0]);
  });

  it("limits all unauthenticated clients together like one tenant, and leaves tenants their share", () => {
    const { budget } = createBudget();
    const accounts = Array.from({ length: 3 }, () => budget.accountOf(new EventEmitter()));
    expect(accounts[0]?.reserve(300)).toBeDefined();
    expect(accounts[1]?.reserve(201)).toBeUndefined();
    expect(accounts[1]?.reserve(300, "ws_1")).toBeDefined();
    expect(accounts[2]?.reserve(200)).toBeDefined();
  });

  it("serves small accounts of unauthenticated clients when a few large ones have exhausted their share", () => {
    const { budget } = createBudget();
    expect(budget.accountOf(new EventEmitter()).reserve(500)).toBeDefined();
    expect(budget.accountOf(new EventEmitter()).reserve(11)).toBeUndefined();
    const small = Array.from({ length: 51 }, () => budget.accountOf(new EventEmitter()).reserve(10));
    expect(small.filter((reservation) => reservation !== undefined)).toHaveLength(50);
  });

  it("moves a reservation to the tenant after authentication", () => {
    const { budget } = createBudget();
    const socket = new EventEmitter();
    const [first, second] = [budget.accountOf(socket), budget.accountOf(new EventEmitter())];
    const reservation = first.reserve(300);
    expect(reservation?.assign("ws_1")).toBe(true);
    expect(second.reserve(201, "ws_1")).toBeUndefined();
    const another = second.reserve(201);
    expect(another?.assign("ws_1")).toBe(false);
    expect(second.reserve(299)).toBeDefined(); // unauthenticated clients have 500, of which 201 are reserved
    socket.emit("close");
    expect(another?.assign("ws_1")).toBe(true);
    expect(budget.reserved).toBe(500);
  });

  it("moves reservations of small accounts to a tenant that a few large ones have exhausted, up to twice its limit", () => {
    const { budget, shed } = createBudget();
    const assign = (bytes: number) => budget.accountOf(new EventEmitter()).reserve(bytes)?.assign("ws_1");
    expect([assign(500), assign(11)]).toEqual([true, false]);
    expect(Array.from({ length: 51 }, () => assign(10))).toEqual([...Array(50).fill(true), false]);
    expect(shed).toEqual(["memory", "memory"]);
  });

  it("gives a connection one account", () => {
    const { budget } = createBudget();
    const socket = new EventEmitter();
    expect(budget.accountOf(socket)).toBe(budget.accountOf(socket));
  });
});
