// A bare Fastify route that parses the request of keys.verifyKey, counts it against two limits with one Redis script by
// ioredis, and returns the same response body. It compares with no limit.
import { fastify } from "fastify";
import { Redis, type Result } from "ioredis";
import { fixedResponse, printAddress } from "./response.js";

declare module "ioredis" {
  interface RedisCommander<Context> {
    countTwice(first: string, second: string, durationMs: number): Result<number[], Context>;
  }
}

const lua = `
local counts = {}
for i, key in ipairs(KEYS) do
  counts[i] = redis.call('INCR', key)
  if counts[i] == 1 then redis.call('PEXPIRE', key, ARGV[1]) end
end
return counts`;

const response = JSON.parse(fixedResponse());
const redis = new Redis(process.env["REDIS_URL"] ?? "");
redis.defineCommand("countTwice", { numberOfKeys: 2, lua });
const server = fastify();
server.post<{ Body: { key: string } }>("/v2/keys.verifyKey", async ({ body: { key } }, reply) => {
  const [first = 0] = await redis.countTwice(`bare:{${key}}:1`, `bare:{${key}}:2`, 3_600_000);
  return first > 0 ? response : reply.code(500).send();
});
printAddress(await server.listen({ host: "127.0.0.1", port: 0 }));
