// SPDX-License-Identifier: Apache-2.0
/**
 * Calls of gpupack-api. The caller's token is sent only in a header.
 *
 * Paths are relative to the page, which may be below a prefix. The header is not Authorization,
 * because a proxy in front, such as `kubectl proxy`, reads and removes that header.
 */

import type { Problem as Sent } from "./contract.ts";
import { accept, refuse, token } from "./session.ts";

export const PREFIX = "api/v1/gpu/";
export const TOKEN_HEADER = "Gpupack-Authorization";

/** An error and what to do about it. `status` 0: there was no answer. */
export type Problem = Pick<Sent, "status" | "detail" | "field" | "fix">;

export type Answer<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problem: Problem };

export type Query = Readonly<Record<string, string | number | undefined>>;

export function pathOf(call: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return PREFIX + call + (text ? `?${text}` : "");
}

export async function get<T>(
  call: string,
  query: Query = {},
  signal?: AbortSignal,
): Promise<Answer<T>> {
  return decode<T>(await send(pathOf(call, query), signal ? { signal } : {}));
}

export async function post<T>(call: string, body: unknown): Promise<Answer<T>> {
  const headers = { "Content-Type": "application/json" };
  return decode<T>(
    await send(pathOf(call), { method: "POST", headers, body: JSON.stringify(body) }),
  );
}

/** Sends a request and returns the response before its body is read. */
export async function send(path: string, init: RequestInit): Promise<Answer<Response>> {
  const used = token.value;
  const headers = new Headers(init.headers);
  headers.set(TOKEN_HEADER, `Bearer ${used}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit" });
  } catch {
    return failed(0, "The server cannot be reached.");
  }
  if (response.ok) {
    if (used === token.value) accept();
    return { ok: true, value: response };
  }
  const problem = await describe(response);
  if (problem.status === 401) refuse(used, problem.detail);
  return { ok: false, problem };
}

export function failed(status: number, detail: string): { ok: false; problem: Problem } {
  return { ok: false, problem: { status, detail, field: "", fix: "" } };
}

async function decode<T>(answer: Answer<Response>): Promise<Answer<T>> {
  if (!answer.ok) return answer;
  try {
    return { ok: true, value: (await answer.value.json()) as T };
  } catch {
    return failed(answer.value.status, "The server's answer ended too early or is not JSON.");
  }
}

async function describe(response: Response): Promise<Problem> {
  const text = await response.text().catch(() => "");
  let body: Partial<Problem> = {};
  try {
    body = JSON.parse(text) as Partial<Problem>;
  } catch {
    // The body is a proxy's page or empty: only the status is shown.
  }
  return {
    status: response.status,
    detail: body.detail || `The server answered ${response.status} ${response.statusText}.`,
    field: body.field ?? "",
    fix: body.fix ?? "",
  };
}
