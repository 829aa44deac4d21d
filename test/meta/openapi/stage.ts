import { afterAll, beforeAll, expect } from "vitest";
import type { HeaderLines } from "../../support/clients/headers.js";
import { sendRequest } from "../../support/clients/http.js";
import type { CallRequest } from "../../support/clients/protocol-client.js";
import { openTestApp, operatorKey, type TestApp } from "../../support/harness.js";
import {
  type HttpRoute,
  keyOperations,
  type OperationName,
  operationOf,
  operatorOperations,
} from "../../support/operations.js";
import { openReference, type Reference } from "./reference.js";

/** The names of all operations. */
export const names = [...keyOperations, ...operatorOperations];

/** An application with its OpenAPI document, against which every response is checked. */
export interface Stage {
  readonly app: TestApp;
  readonly reference: Reference;
  /** A workspace and its first key. */
  readonly home: { readonly workspaceId: string; readonly keyId: string; readonly key: string };
  /** Calls a route, checks the response against the document, and returns its status, data and code. */
  call(route: HttpRoute, credential: string | [], request: CallRequest, headers?: HeaderLines): Promise<Answer>;
  /** The data of an operation that must succeed. */
  data<T>(name: OperationName, request: CallRequest): Promise<T>;
  /** A credential that may call the operation. */
  credentialFor(name: OperationName): string;
}

/** A response that matches the document. */
export interface Answer {
  readonly status: number;
  readonly data: unknown;
  /** `<category>/<code>` of an error. */
  readonly code: string | undefined;
  /** The fields that the error names. */
  readonly badFields: readonly string[];
}

/** Opens the stage of a test file. Call it once, at the top level. */
export function openStage(): Stage {
  let app: TestApp;
  let reference: Reference;
  let home: Stage["home"];

  const stage: Stage = {
    get app() {
      return app;
    },
    get reference() {
      return reference;
    },
    get home() {
      return home;
    },
    async call(route, credential, request, headers) {
      const response = await sendRequest(app.httpUrl, route, credential, request, headers);
      const { data, error } = await reference.holds(route, response);
      return {
        status: response.status,
        data,
        code: error?.type.split("/").slice(-2).join("/"),
        badFields: error?.errors?.map(({ location }) => location) ?? [],
      };
    },
    async data<T>(name: OperationName, request: CallRequest) {
      const response = await stage.call(operationOf(name).routes[0], stage.credentialFor(name), request);
      expect(response).toMatchObject({ status: 200 });
      return response.data as T;
    },
    credentialFor: (name) => (operationOf(name).scope === undefined ? operatorKey : home.key),
  };

  beforeAll(async () => {
    app = await openTestApp();
    reference = await openReference(app.httpUrl);
    home = await stage.data("createWorkspace", { name: "acme" });
  });
  afterAll(() => app.close());
  return stage;
}
