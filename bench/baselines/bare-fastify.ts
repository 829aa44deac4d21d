// Fastify with its defaults and one route, which parses the same request body and returns the same response body.
import { fastify } from "fastify";
import { fixedResponse, printAddress } from "./response.js";

const response = JSON.parse(fixedResponse());
const server = fastify();
server.post("/v2/keys.verifyKey", async () => response);
printAddress(await server.listen({ host: "127.0.0.1", port: 0 }));
