// SPDX-License-Identifier: Apache-2.0
/** Lists of gpupack-api, followed to their end. */

import { type Answer, failed } from "./api.ts";

/** A part of a list. `next` is `after` of the call that has the next part; empty: there is none. */
export interface Page {
  readonly next?: string;
}

/**
 * Returns all pages, or the problem with one of them.
 *
 * @param ask fetches the page after a cursor. `first` is the first page, once it has arrived.
 */
export async function allPages<T extends Page>(
  ask: (after: string, first: T | undefined) => Promise<Answer<T>>,
): Promise<Answer<readonly T[]>> {
  const found: T[] = [];
  let after = "";
  do {
    const answer = await ask(after, found[0]);
    if (!answer.ok) return answer;
    found.push(answer.value);
    const next = answer.value.next ?? "";
    if (next !== "" && next === after) {
      return failed(200, "A page of the server's answer names itself as the next one.");
    }
    after = next;
  } while (after !== "");
  return { ok: true, value: found };
}

/** Joins pages of CSV to one file with one header line. */
export function joinedCsv(pages: readonly string[]): string {
  return pages.map((page, at) => (at === 0 ? page : afterFirstLine(page))).join("");
}

/** Query of the next page from a Link header. Empty: there is no next page. */
export function nextOf(link: string | null): Readonly<Record<string, string>> {
  const query = link?.match(/<\?([^>]*)>\s*;\s*rel="?next"?/)?.[1];
  return query === undefined ? {} : Object.fromEntries(new URLSearchParams(query));
}

function afterFirstLine(text: string): string {
  return text.slice(text.indexOf("\n") + 1);
}
