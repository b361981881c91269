// SPDX-License-Identifier: Apache-2.0
/** Bearer tokens as people paste them. */

const TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/;

/** The token itself: of "Authorization: Bearer x", of `"x"`, of lines that a terminal broke. */
export function cleaned(pasted: string): string {
  return pasted.replace(/^\s*(authorization:)?\s*(bearer\s)?/i, "").replace(/["'\s]/g, "");
}

/** What is wrong with it; empty: it can be sent. */
export function fault(token: string): string {
  if (token === "") return "Paste a token.";
  return TOKEN.test(token) ? "" : "This is no token: it has characters that no token has.";
}

/** When it ends, in milliseconds since 1970; null: it does not say. The server alone judges it. */
export function expiry(token: string): number | null {
  const seconds = claims(token)?.["exp"];
  return typeof seconds === "number" ? seconds * 1000 : null;
}

/** Whose it says to be; empty: it does not say. */
export function subject(token: string): string {
  const found = claims(token)?.["sub"];
  return typeof found === "string" ? found : "";
}

/** The namespace of a service account's; empty: it is none's. */
export function namespace(token: string): string {
  const [kind, what, found = ""] = subject(token).split(":");
  return kind === "system" && what === "serviceaccount" ? found : "";
}

function claims(token: string): Readonly<Record<string, unknown>> | null {
  const payload = token.split(".")[1];
  if (!payload) return null;
  try {
    const found: unknown = JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/")));
    return typeof found === "object" ? (found as Readonly<Record<string, unknown>> | null) : null;
  } catch {
    return null;
  }
}
