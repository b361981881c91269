// SPDX-License-Identifier: Apache-2.0
/** Bearer tokens that users paste. */

const TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/;

/** Extracts the token from "Authorization: Bearer x", from `"x"`, or from lines that a terminal wrapped. */
export function cleaned(pasted: string): string {
  return pasted.replace(/^\s*(authorization:)?\s*(bearer\s)?/i, "").replace(/["'\s]/g, "");
}

/** Describes what is wrong with a token. Empty: the token can be sent. */
export function fault(token: string): string {
  if (token === "") return "Paste a token.";
  return TOKEN.test(token)
    ? ""
    : "This is not a token: it contains characters that are not allowed in a token.";
}

/** Expiry in milliseconds since 1970. null: the token has none. Only the server verifies it. */
export function expiry(token: string): number | null {
  const seconds = claims(token)?.["exp"];
  return typeof seconds === "number" ? seconds * 1000 : null;
}

/** Subject of the token. Empty: it has none. */
export function subject(token: string): string {
  const found = claims(token)?.["sub"];
  return typeof found === "string" ? found : "";
}

/** Namespace of a service account's token. Empty: it is not a service account's token. */
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
