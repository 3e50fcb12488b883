// The token, which the address that `gang web` prints has behind its #: no server and no log sees
// that part. It is kept for this tab and this origin alone. A cookie would go to every port of the
// host, and so to other servers there.

const KEY = "gang-token";

/** The token of the address, which is taken out of it, or the one that this tab had before. */
export function token(): string | null {
  const found = /^#token=([0-9A-Za-z_-]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, found[1]!);
    history.replaceState(null, "", "#/");
  }
  return sessionStorage.getItem(KEY);
}

export function forget(): void {
  sessionStorage.removeItem(KEY);
}
