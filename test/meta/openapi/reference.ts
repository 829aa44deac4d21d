import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { expect } from "vitest";
import type { HttpRoute } from "../../support/operations.js";

/** The parts of the document that the tests use. */
export interface OpenApi {
  readonly paths: Record<string, Record<string, DocumentedOperation>>;
  readonly components: {
    readonly schemas: Record<string, Schema>;
    readonly responses: Record<string, DocumentedResponse>;
    readonly examples: Record<string, { readonly value: { readonly error: object } }>;
  };
}

interface DocumentedOperation {
  readonly operationId: string;
  readonly security: readonly Record<string, readonly string[]>[];
  readonly parameters?: readonly object[];
  readonly requestBody?: { readonly required: boolean; readonly content: Content };
  readonly responses: Record<string, DocumentedResponse | { readonly $ref: string }>;
}

interface DocumentedResponse {
  readonly headers: Record<string, unknown>;
  readonly content: Content;
}

interface Content {
  readonly "application/json": { readonly schema: Schema; readonly examples?: Record<string, unknown> };
}

type Schema = Record<string, unknown>;

/** The document, with functions to check requests and responses against it. */
export interface Reference {
  /** The documentation of a route. */
  operation(route: HttpRoute): DocumentedOperation;
  /** Whether a request is valid against the schema of a route's body. */
  accepts(route: HttpRoute, request: unknown): boolean;
  /** The schema of a route's body. */
  body(route: HttpRoute): BodySchema;
  /** The error codes that are documented for a route and a status. */
  codes(route: HttpRoute, status: number): string[];
  /** Expects a response to match the document exactly; returns its body. */
  holds(route: HttpRoute, response: Response): Promise<Body>;
}

/** The parts of a body's schema that the tests use. */
export interface BodySchema {
  readonly properties: Record<string, FieldSchema>;
  readonly examples: readonly Record<string, unknown>[];
}

/** The limits of a field. */
export interface FieldSchema {
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxItems?: number;
  readonly items?: FieldSchema;
}

interface Body {
  readonly data?: unknown;
  readonly error?: { readonly type: string; readonly errors?: readonly { readonly location: string }[] };
}

/** Reads the document from the service that it describes. */
export async function openReference(httpUrl: string): Promise<Reference> {
  const document = (await (await fetch(`${httpUrl}/openapi.json`)).json()) as OpenApi;
  const ajv = new Ajv2020({ allErrors: true, strict: false, validateFormats: false });
  ajv.addSchema(closed(document) as Schema, "openapi");
  const validators = new Map<Schema, ValidateFunction>();

  function validatorOf(schema: Schema): ValidateFunction {
    const known = validators.get(schema) ?? ajv.compile(absolute(closed(schema)) as Schema);
    validators.set(schema, known);
    return known;
  }

  function operation([method, path]: HttpRoute): DocumentedOperation {
    const found = document.paths[path]?.[method.toLowerCase()];
    if (found === undefined) return expect.fail(`${method} ${path} is not documented`);
    return found;
  }

  function responseTo(route: HttpRoute, status: number): DocumentedResponse {
    const { responses } = operation(route);
    const found = responses[status] ?? responses["default"];
    if (found === undefined) return expect.fail(`${route.join(" ")} documents no ${status}`);
    if (!("$ref" in found)) return found;
    return document.components.responses[found.$ref.replace(/.*\//, "")] ?? expect.fail(`${found.$ref} does not exist`);
  }

  function codes(route: HttpRoute, status: number): string[] {
    const { examples = {} } = responseTo(route, status).content["application/json"];
    return Object.keys(examples).map((name) => name.replace(".", "/"));
  }

  function schemaOfBody(route: HttpRoute): Schema {
    const { requestBody } = operation(route);
    if (requestBody === undefined) return expect.fail(`${route.join(" ")} has no body`);
    return requestBody.content["application/json"].schema;
  }

  return {
    operation,
    codes,
    accepts: (route, request) => validatorOf(schemaOfBody(route))(request),
    body(route) {
      const name = String(schemaOfBody(route)["$ref"]).replace(/.*\//, "");
      return (document.components.schemas[name] ?? expect.fail(`there is no schema ${name}`)) as unknown as BodySchema;
    },
    async holds(route, response) {
      const documented = responseTo(route, response.status);
      const body = (await response.json()) as Body;
      const validate = validatorOf(documented.content["application/json"].schema);
      const context = `${route.join(" ")} responded ${response.status} ${JSON.stringify(body)}`;
      expect(validate(body) ? [] : validate.errors, context).toEqual([]);
      if (body.error !== undefined) {
        expect(codes(route, response.status), context).toContain(body.error.type.split("/").slice(-2).join("/"));
      }
      return body;
    },
  };
}

/** Clients must accept fields that are added later. The service under test has only documented fields. */
function closed(value: unknown): unknown {
  return mapped(value, closed, (object) =>
    object["type"] === "object" && object["properties"] !== undefined
      ? { additionalProperties: false, ...object }
      : object,
  );
}

/** The same schema, with its references relative to the document. */
function absolute(value: unknown): unknown {
  return mapped(value, absolute, (object) =>
    typeof object["$ref"] === "string" ? { ...object, $ref: `openapi${object["$ref"]}` } : object,
  );
}

function mapped(value: unknown, each: (value: unknown) => unknown, change: (object: Schema) => Schema): unknown {
  if (Array.isArray(value)) return value.map(each);
  if (typeof value !== "object" || value === null) return value;
  return change(Object.fromEntries(Object.entries(value).map(([name, member]) => [name, each(member)])));
}
