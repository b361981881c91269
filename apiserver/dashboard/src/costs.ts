// SPDX-License-Identifier: Apache-2.0
/** Costs, merged from all pages of the answer. */

import { type Answer, failed, get, pathOf, type Query, send } from "./api.ts";
import type { Cost, CostRow } from "./contract.ts";
import { allPages, joinedCsv, nextOf } from "./paging.ts";

const PAGE = 20_000;

export async function costs(query: Query, signal: AbortSignal): Promise<Answer<Cost>> {
  const found = await allPages<Cost>((after, first) => {
    // An hour that begins between two pages must not lengthen the period of the later ones.
    const period = first ? { since: first.since, until: first.until } : {};
    return get<Cost>("cost", { ...query, ...period, limit: PAGE, after }, signal);
  });
  return found.ok ? { ok: true, value: whole(found.value) } : found;
}

export async function costsAsCsv(query: Query): Promise<Answer<Blob>> {
  const pages: string[] = [];
  let current: Query = { ...query, format: "csv", limit: PAGE };
  for (;;) {
    const answer = await send(pathOf("cost", current), {});
    if (!answer.ok) return answer;
    pages.push(await answer.value.text());
    const next = nextOf(answer.value.headers.get("Link"));
    if (!next["after"]) break;
    if (next["after"] === current["after"])
      return failed(200, "A page of the answer names itself as the next one.");
    current = next;
  }
  return { ok: true, value: new Blob([joinedCsv(pages)], { type: "text/csv" }) };
}

/** Running jobs cost more on the last page than on the first, so the total is computed from the rows. */
export function whole(pages: readonly Cost[]): Cost {
  const [first, ...others] = pages as readonly [Cost, ...Cost[]];
  if (others.length === 0) return first;
  const rows = pages.flatMap((page) => page.rows);
  return { ...first, rows, total: total(rows), next: "" };
}

/** Sums as the server does: a cost is unknown if one is unknown, a measurement only if all are. */
export function total(rows: readonly CostRow[]): CostRow {
  return {
    namespace: "",
    cohort: "",
    job: "",
    model: "",
    allocated_gpu_hours: sum(rows.map((row) => row.allocated_gpu_hours)) ?? 0,
    used_gpu_hours: sum(rows.map((row) => row.used_gpu_hours)),
    idle_gpu_hours: sum(rows.map((row) => row.idle_gpu_hours)),
    unknown_gpu_hours: sum(rows.map((row) => row.unknown_gpu_hours)) ?? 0,
    energy_kwh: sum(rows.map((row) => row.energy_kwh)),
    cost: rows.some((row) => row.cost === null) ? null : (sum(rows.map((row) => row.cost)) ?? 0),
  };
}

function sum(figures: readonly (number | null)[]): number | null {
  const known = figures.filter((each) => each !== null);
  return known.length > 0 ? known.reduce((all, each) => all + each, 0) : null;
}
