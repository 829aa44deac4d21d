// Fastify as it comes, with one route that reads the same body and answers the same one.
import { fastify } from "fastify";
import { givenAnswer, tellAddress } from "./answers.js";

const answer = JSON.parse(givenAnswer());
const server = fastify();
server.post("/v2/keys.verifyKey", async () => answer);
tellAddress(await server.listen({ host: "127.0.0.1", port: 0 }));
