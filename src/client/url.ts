/** Throws if this is not the address of an HTTP server. */
export function checkUrl(name: string, url: string): void {
  if (/^https?:\/\//.test(url) && URL.canParse(url)) return;
  throw new TypeError(`The ${name} must be an HTTP address, such as https://keys.example.com.`);
}
