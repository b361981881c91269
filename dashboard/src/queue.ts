// SPDX-License-Identifier: Apache-2.0
/** Jobs that wait, of all pages. */

import { type Answer, get } from "./api.ts";
import type { Queue } from "./contract.ts";
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
  const jobs = new Map(pages.flatMap((page) => page.waiting).map((job) => [keyOf(job), job]));
  return { ...last, waiting: [...jobs.values()], total: jobs.size };
}
