import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { expect } from "vitest";
import { toBody } from "../../support/clients/messages.js";
import type { CallRequest } from "../../support/clients/protocol-client.js";
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

/** The body by its media type. */
type Content = Record<string, { readonly schema: Schema; readonly examples?: Record<string, unknown> }>;

type Schema = Record<string, unknown>;

/** The document, with functions to check requests and responses against it. */
export interface Reference {
  /** The documentation of a route. */
  operation(route: HttpRoute): DocumentedOperation;
  /** Whether a request is valid against the schema of a route's body. */
  accepts(route: HttpRoute, request: CallRequest): boolean;
  /** The schema of a field of a request, by its names from the request inwards. Items of lists have no name. */
  field(route: HttpRoute, names: readonly string[]): FieldSchema;
  /** The example of a request. */
  example(route: HttpRoute): CallRequest;
  /** The error codes that are documented for a route and a status. */
  codes(route: HttpRoute, status: number): string[];
  /** Expects a response to match the document exactly; returns its body. */
  holds(route: HttpRoute, response: Response): Promise<Body>;
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
    const documented = Object.values(responseTo(route, status).content);
    return documented.flatMap(({ examples = {} }) => Object.keys(examples).map((name) => name.replace(".", "/")));
  }

  function schemaOfBody(route: HttpRoute): Schema {
    const { requestBody } = operation(route);
    if (requestBody === undefined) return expect.fail(`${route.join(" ")} has no body`);
    return schemaIn(requestBody.content, "application/json");
  }

  /** The schema that another one refers to, also if it may be null. */
  function resolved(schema: Schema): Schema {
    const [choice = schema] = (schema["anyOf"] ?? []) as Schema[];
    const name = String(choice["$ref"] ?? "").replace(/.*\//, "");
    return name === "" ? schema : (document.components.schemas[name] ?? expect.fail(`there is no schema ${name}`));
  }

  function fieldIn(schema: Schema, [name, ...others]: readonly string[]): FieldSchema {
    const found = resolved(schema);
    if (name === undefined) return found;
    const { properties } = resolved((found["items"] ?? found) as Schema) as { properties: Record<string, Schema> };
    return fieldIn(properties[name] ?? expect.fail(`there is no field ${name}`), others);
  }

  return {
    operation,
    codes,
    accepts: (route, request) => validatorOf(schemaOfBody(route))(toBody(request, route[2])),
    field(route, names) {
      const [first, ...others] = names;
      const body = schemaOfBody(route);
      // A body that is the value of one field has the schema of that field.
      return first === route[2] ? fieldIn(body, others) : fieldIn(body, names);
    },
    example(route) {
      const [example] = resolved(schemaOfBody(route))["examples"] as unknown[];
      return (route[2] === undefined ? example : { [route[2]]: example }) as CallRequest;
    },
    async holds(route, response) {
      const documented = responseTo(route, response.status);
      const body = (await response.json()) as Body;
      const [mediaType = ""] = (response.headers.get("content-type") ?? "").split(";");
      const validate = validatorOf(schemaIn(documented.content, mediaType));
      const context = `${route.join(" ")} responded ${response.status} ${JSON.stringify(body)}`;
      expect(validate(body) ? [] : validate.errors, context).toEqual([]);
      if (body.error !== undefined) {
        const code = body.error.type.split("/").slice(-2).join(".");
        expect(Object.keys(documented.content[mediaType]?.examples ?? {}), context).toContain(code);
      }
      return body;
    },
  };
}

function schemaIn(content: Content, mediaType: string): Schema {
  return content[mediaType]?.schema ?? expect.fail(`the body has the media type ${mediaType}, which is not documented`);
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
