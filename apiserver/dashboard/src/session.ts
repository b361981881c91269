// SPDX-License-Identifier: Apache-2.0
/** The caller's token: in this tab's sessionStorage, or in memory where the browser has none. */

import { signal } from "@preact/signals";

const KEY = "gpupack.token";

export const token = signal(read());

/** Why the token was refused; empty: it was not. */
export const refusal = signal("");

/** Whether any call was answered since somebody signed in: there is something to stay. */
let answered = false;

export function signIn(given: string): void {
  write(given);
  refusal.value = "";
  token.value = given;
}

/** Forget the token, with all that was shown by it. */
export function signOut(): void {
  forget();
  refusal.value = "";
}

/** The server takes this token. */
export function accept(): void {
  answered = true;
}

/** The server does not take this token; what it has shown stays behind the login. */
export function refuse(refused: string, why: string): void {
  if (refused !== token.value) return;
  if (!answered) forget();
  refusal.value = why || "The token is not valid any more.";
}

function forget(): void {
  answered = false;
  write("");
  token.value = "";
}

function read(): string {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

function write(value: string): void {
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Where storage is forbidden the token is in memory alone: a reload asks for it again.
  }
}
