// SPDX-License-Identifier: Apache-2.0
/** Pending jobs and standalone pods, from all pages of the answer. */

import { type Answer, get } from "./api.ts";
import type { Queue, Waiting } from "./contract.ts";
import { keyOf } from "./live/cluster.ts";
import { allPages } from "./paging.ts";

const PAGE = 5000;

export async function queue(namespace: string, signal: AbortSignal): Promise<Answer<Queue>> {
  const found = await allPages<Queue>((after) =>
    get<Queue>("queue", { namespace, limit: PAGE, after }, signal),
  );
  return found.ok ? { ok: true, value: merge(found.value) } : found;
}

/** A job whose priority changes between two pages is on both or on none. The next call corrects this. */
function merge(pages: readonly Queue[]): Queue {
  const [last] = pages.slice(-1) as [Queue];
  const rows = new Map(pages.flatMap((page) => page.waiting).map((row) => [rowKey(row), row]));
  return { ...last, waiting: [...rows.values()].sort(byPosition), total: rows.size };
}

/** Key of a row. A job and a pod may have the same name. */
export function rowKey(row: Waiting): string {
  return `${row.kind} ${keyOf(row)}`;
}

/** Entries without a position come last, in their order. */
function byPosition(a: Waiting, b: Waiting): number {
  return (a.position ?? Number.MAX_SAFE_INTEGER) - (b.position ?? Number.MAX_SAFE_INTEGER);
}
