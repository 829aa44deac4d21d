// The part of V8, in Node 20 to 24, that it does not document. Listed in docs/architecture/library-internals.md.
import { setFlagsFromString } from "node:v8";

/**
 * Lets the heap grow by at most half of its live objects before they are collected. By default, V8 decides by itself, up
 * to a multiple. The caches are bounded, so the garbage must be, too.
 *
 * Measured with a cache of 128 MiB through which 250,000 keys pass, in three alternating rounds (Node 20, Neoverse-N1):
 * the peak of the resident memory is 310 MiB (309 to 313), without the flag 360 MiB (349 to 476). The CPU time is the
 * same (ratio 1.00, from 0.99 to 1.01). V8 has no way to read a flag, so a test checks that it exists: an unknown one is
 * ignored, with a line on stderr.
 */
export function limitHeapGrowth(): void {
  setFlagsFromString(heapGrowthFlag);
}

export const heapGrowthFlag = "--heap-growing-percent=50";
