import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { expect } from "vitest";
import type { HttpRoute } from "../../contract/operations.js";

/** The parts of the document that the tests look at. */
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

/** The document, ready to hold requests and answers against. */
export interface Reference {
  /** What is documented at a route. */
  operation(route: HttpRoute): DocumentedOperation;
  /** Whether the schema of a route's body takes a request. */
  takes(route: HttpRoute, request: unknown): boolean;
  /** The schema of a route's body. */
  body(route: HttpRoute): BodySchema;
  /** The codes of the catalogue that are documented for a route and a status. */
  codes(route: HttpRoute, status: number): string[];
  /** Expects an answer to be just as it is documented for its route; gives its body. */
  holds(route: HttpRoute, response: Response): Promise<Body>;
}

/** What the tests look at in the schema of a body. */
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
    return document.components.responses[found.$ref.replace(/.*\//, "")] ?? expect.fail(`${found.$ref} leads nowhere`);
  }

  function codes(route: HttpRoute, status: number): string[] {
    const { examples = {} } = responseTo(route, status).content["application/json"];
    return Object.keys(examples).map((name) => name.replace(".", "/"));
  }

  function schemaOfBody(route: HttpRoute): Schema {
    const { requestBody } = operation(route);
    if (requestBody === undefined) return expect.fail(`${route.join(" ")} takes no body`);
    return requestBody.content["application/json"].schema;
  }

  return {
    operation,
    codes,
    takes: (route, request) => validatorOf(schemaOfBody(route))(request),
    body(route) {
      const name = String(schemaOfBody(route)["$ref"]).replace(/.*\//, "");
      return (document.components.schemas[name] ?? expect.fail(`there is no schema ${name}`)) as unknown as BodySchema;
    },
    async holds(route, response) {
      const documented = responseTo(route, response.status);
      const body = (await response.json()) as Body;
      const validate = validatorOf(documented.content["application/json"].schema);
      const told = `${route.join(" ")} answered ${response.status} ${JSON.stringify(body)}`;
      expect(validate(body) ? [] : validate.errors, told).toEqual([]);
      if (body.error !== undefined) {
        expect(codes(route, response.status), told).toContain(body.error.type.split("/").slice(-2).join("/"));
      }
      return body;
    },
  };
}

/** Clients are to bear fields that come later; the service under test has none that are not documented. */
function closed(value: unknown): unknown {
  return mapped(value, closed, (object) =>
    object["type"] === "object" && object["properties"] !== undefined
      ? { additionalProperties: false, ...object }
      : object,
  );
}

/** The same schema with references that lead into the document from anywhere. */
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
