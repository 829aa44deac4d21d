// Preloaded into the service to test that the soak detects a leak. Leaks LEAK_BYTES for every 100 requests on the HTTP
// port, in the heap or in Buffers, depending on LEAK_IN.
import { subscribe } from "node:diagnostics_channel";

const leaked = [];
const bytes = Number(process.env.LEAK_BYTES);
const allocate = {
  heap: (number) => new Array(bytes / 8).fill(number + 0.5),
  // Filled, because memory that is never written is not resident.
  buffers: () => Buffer.alloc(bytes, 1),
}[process.env.LEAK_IN];
let requests = 0;
subscribe("http.server.request.start", () => {
  requests += 1;
  if (requests % 100 === 0) leaked.push(allocate(requests));
});
