import { setFlagsFromString } from "node:v8";

/**
 * The caches are bounded, so the garbage must be, too: V8 would let the heap grow to a multiple of its live objects.
 */
export function limitHeapGrowth(): void {
  setFlagsFromString("--heap-growing-percent=50");
}
