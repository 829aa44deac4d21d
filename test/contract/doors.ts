import { openConnectDoor, openGrpcWebDoor } from "./connect-door.js";
import type { Door } from "./door.js";
import { type GrpcDoor, openGrpcDoor } from "./grpc-door.js";
import { openHttpDoor } from "./http-door.js";

/** Every way into one application. */
export interface Doors {
  readonly grpc: GrpcDoor;
  readonly http: Door;
  readonly connect: Door;
  readonly "grpc-web": Door;
  close(): void;
}

/** Opens a real client for each door of an application. */
export function openDoors({ httpUrl, grpcAddress }: { httpUrl: string; grpcAddress: string }): Doors {
  const doors = {
    grpc: openGrpcDoor(grpcAddress),
    http: openHttpDoor(httpUrl),
    connect: openConnectDoor(httpUrl),
    "grpc-web": openGrpcWebDoor(httpUrl),
  };
  return {
    ...doors,
    close: () => {
      for (const door of Object.values(doors)) door.close();
    },
  };
}
