/** Throws if this is not the address of an HTTP server. */
export function checkUrl(name: string, url: string): void {
  if (!/^https?:\/\//.test(url) || !URL.canParse(url)) {
    throw new TypeError(`The ${name} must be an HTTP address, such as https://keys.example.com.`);
  }
  // The path of each call is added at its end.
  if (/[?#]/.test(url)) throw new TypeError(`The ${name} must not have a query or a fragment.`);
  // fetch refuses them with an error that contains them. Our own errors contain the address, too.
  const { username, password } = new URL(url);
  if (username + password !== "") {
    throw new TypeError(`The ${name} must not have a user name or a password. The credential is the key.`);
  }
}
