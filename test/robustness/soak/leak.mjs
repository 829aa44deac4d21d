// Loaded into the service to see that the soak finds a leak: keeps LEAK_BYTES for every 100 requests on the HTTP port, in
// the heap or in Buffers, as LEAK_IN says.
import { subscribe } from "node:diagnostics_channel";

const kept = [];
const bytes = Number(process.env.LEAK_BYTES);
const keep = {
  heap: (number) => new Array(bytes / 8).fill(number + 0.5),
  // Written to: what is not is not resident.
  buffers: () => Buffer.alloc(bytes, 1),
}[process.env.LEAK_IN];
let requests = 0;
subscribe("http.server.request.start", () => {
  requests += 1;
  if (requests % 100 === 0) kept.push(keep(requests));
});
