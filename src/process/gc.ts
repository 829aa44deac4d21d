import { setFlagsFromString } from "node:v8";

/** What is held is bounded, so garbage shall be, too: V8 would let the heap grow to a multiple of what lives in it. */
export function limitHeapGrowth(): void {
  setFlagsFromString("--heap-growing-percent=50");
}
