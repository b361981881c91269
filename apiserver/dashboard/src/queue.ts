// SPDX-License-Identifier: Apache-2.0
/** Jobs and standalone pods that wait, of all pages. */

import { type Answer, get } from "./api.ts";
import type { Queue, Waiting } from "./contract.ts";
import { keyOf } from "./live/cluster.ts";
import { allPages } from "./paging.ts";

const PAGE = 5000;

export async function queue(namespace: string, signal: AbortSignal): Promise<Answer<Queue>> {
  const found = await allPages<Queue>((after) =>
    get<Queue>("queue", { namespace, limit: PAGE, after }, signal),
  );
  return found.ok ? { ok: true, value: joined(found.value) } : found;
}

/** A job whose priority changes between two pages is on both or on none: the next look mends it. */
function joined(pages: readonly Queue[]): Queue {
  const [last] = pages.slice(-1) as [Queue];
  const rows = new Map(pages.flatMap((page) => page.waiting).map((row) => [rowOf(row), row]));
  return { ...last, waiting: [...rows.values()].sort(byPosition), total: rows.size };
}

/** A job and a pod may have one name. */
export function rowOf(row: Waiting): string {
  return `${row.kind} ${keyOf(row)}`;
}

/** Those that are not in the queue come last, as they came. */
function byPosition(a: Waiting, b: Waiting): number {
  return (a.position ?? Number.MAX_SAFE_INTEGER) - (b.position ?? Number.MAX_SAFE_INTEGER);
}
