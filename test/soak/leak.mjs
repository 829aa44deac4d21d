// Loaded into the service to see that the soak finds a leak: keeps LEAK_BYTES for every 100 requests on the HTTP port.
import { subscribe } from "node:diagnostics_channel";

const kept = [];
const bytes = Number(process.env.LEAK_BYTES);
let requests = 0;
subscribe("http.server.request.start", () => {
  requests += 1;
  if (requests % 100 === 0) kept.push(new Array(bytes / 8).fill(requests + 0.5));
});
