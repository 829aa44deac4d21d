/** A response of HTTP/JSON, without checks. */
export interface JsonResponse<Data> {
  readonly status: number;
  /** `<category>/<code>` of an error. */
  readonly error: string | undefined;
  /** The description of an error. */
  readonly detail: string | undefined;
  readonly data: Data;
}

/** Posts JSON to a path, by default an empty request. */
export async function callJson<Data>(
  httpUrl: string,
  path: string,
  credential: string,
  body: unknown = {},
  signal?: AbortSignal,
): Promise<JsonResponse<Data>> {
  const response = await fetch(`${httpUrl}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${credential}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal && { signal }),
  });
  const { data, error } = (await response.json()) as { data: Data; error?: { type: string; detail: string } };
  const code = error?.type.split("/").slice(-2).join("/");
  return { status: response.status, error: code, detail: error?.detail, data };
}
