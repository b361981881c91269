// SPDX-License-Identifier: Apache-2.0
/** The caller's token: in this tab's sessionStorage, or in memory if the browser allows no storage. */

import { signal } from "@preact/signals";

const KEY = "gpupack.token";

export const token = signal(read());

/** Reason for which the token was refused. Empty: it was not refused. */
export const refusal = signal("");

/** Whether a call was answered since the sign-in, so that there is a view to keep. */
let answered = false;

export function signIn(given: string): void {
  write(given);
  refusal.value = "";
  token.value = given;
}

/** Forgets the token and everything that was shown with it. */
export function signOut(): void {
  forget();
  refusal.value = "";
}

/** The server accepted this token. */
export function accept(): void {
  answered = true;
}

/** The server refused this token. The view stays behind the login. */
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
    // Storage is not allowed: the token is only in memory, and a reload asks for it again.
  }
}
