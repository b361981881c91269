// SPDX-License-Identifier: Apache-2.0
/** Costs of GPUs, by namespace, job, cohort or model. */

import { useMemo, useState } from "preact/hooks";
import type { Problem, Query } from "../api.ts";
import { GROUPS } from "../choices.ts";
import type { Cost, CostRow, UnheldRow } from "../contract.ts";
import { costs, costsAsCsv } from "../costs.ts";
import { byName, figure, UNKNOWN } from "../format.ts";
import { useAnswer } from "../parts/call.ts";
import { Nothing } from "../parts/nothing.tsx";
import { Loading, Missing } from "../parts/notice.tsx";
import { Scope, scope } from "../parts/scope.tsx";
import { type Column, Table } from "../parts/table.tsx";

type GroupBy = (typeof GROUPS)[number];
const DAY_SECONDS = 86_400;
const SPANS = [1, 7, 30, 90];

export function CostView() {
  const [group, setGroup] = useState<GroupBy>("namespace");
  const [days, setDays] = useState(30);
  const [failure, setFailure] = useState<Problem | null>(null);
  const query = useMemo<Query>(
    () => ({
      since: new Date(Date.now() - days * DAY_SECONDS * 1000).toISOString(),
      group_by: group,
      namespace: scope.value,
    }),
    [days, group, scope.value],
  );
  const key = `cost?${JSON.stringify(query)}`;
  const { value, problem, again } = useAnswer<Cost>(key, (signal) => costs(query, signal), 60);
  const save = async () => {
    const answer = await costsAsCsv(query);
    setFailure(answer.ok ? null : answer.problem);
    if (answer.ok) download(answer.value, `gpupack-cost-${group}-${days}d.csv`);
  };
  return (
    <main class="view" id="main" tabIndex={-1}>
      <div class="view-head">
        <h1>Cost</h1>
        <label>
          By{" "}
          <select
            value={group}
            onChange={(event) => setGroup(event.currentTarget.value as GroupBy)}
          >
            {GROUPS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          The last{" "}
          <select value={days} onChange={(event) => setDays(Number(event.currentTarget.value))}>
            {SPANS.map((each) => (
              <option key={each} value={each}>
                {each === 1 ? "day" : `${each} days`}
              </option>
            ))}
          </select>
        </label>
        <Scope />
        <button type="button" onClick={save} disabled={!value}>
          Download CSV
        </button>
      </div>
      {failure && <Missing what="CSV" problem={failure} />}
      {problem && !value ? (
        <Missing what="Cost" problem={problem} again={again} />
      ) : !value ? (
        <Loading what="Cost" />
      ) : value.rows.length === 0 ? (
        <Nothing
          what="costs"
          kind="GPUJobs"
          mayList={scope.value !== "" || null}
          title="Nothing was used"
        >
          In this period no pod that you may see held a GPU.
        </Nothing>
      ) : (
        <Shown cost={value} group={group} />
      )}
    </main>
  );
}

function Shown({ cost, group }: { cost: Cost; group: GroupBy }) {
  const maxCost = Math.max(...cost.rows.map((row) => row.cost ?? 0), 1e-9);
  const columns: readonly Column<CostRow>[] = [
    {
      key: "of",
      title: group,
      width: "minmax(120px, 2fr)",
      order: (a, b) => byName(nameOf(a, group), nameOf(b, group)),
      cell: (row) => nameOf(row, group) || <span class="muted">none</span>,
    },
    {
      key: "part",
      title: "",
      width: "minmax(60px, 1.5fr)",
      wideOnly: true,
      cell: (row) => (
        <span class="meter" aria-hidden="true">
          <span style={{ width: `${((row.cost ?? 0) / maxCost) * 100}%` }} />
        </span>
      ),
    },
    figures("cost", { title: priced(cost), digits: 2 }),
    figures("allocated_gpu_hours", {
      title: "GPU hours",
      digits: 1,
    }),
    figures("used_gpu_hours", {
      title: "used",
      digits: 1,
      wideOnly: true,
    }),
    figures("idle_gpu_hours", {
      title: "idle",
      digits: 1,
      wideOnly: true,
    }),
    figures("unknown_gpu_hours", {
      title: "not measured",
      digits: 1,
      wideOnly: true,
    }),
    figures("energy_kwh", {
      title: "kWh",
      digits: 1,
      wideOnly: true,
    }),
  ];
  const total = cost.total;
  return (
    <>
      <dl class="facts">
        <Fact name={priced(cost)} value={figure(total.cost, 2)} />
        <Fact name="GPU hours held" value={figure(total.allocated_gpu_hours)} />
        <Fact name="of them used" value={figure(total.used_gpu_hours)} />
        <Fact name="of them idle" value={figure(total.idle_gpu_hours)} />
        <Fact name="of them not measured" value={figure(total.unknown_gpu_hours)} />
        <Fact
          name="Energy"
          value={total.energy_kwh === null ? UNKNOWN : `${figure(total.energy_kwh)} kWh`}
        />
      </dl>
      <div class="bounded-table">
        <Table
          label="Cost"
          columns={columns}
          rows={cost.rows}
          keyOf={(row) => `${row.namespace}/${row.cohort}/${row.job}/${row.model}`}
        />
      </div>
      {cost.unheld && cost.unheld.length > 0 && <Unheld cost={cost} />}
    </>
  );
}

/** Costs of GPUs without a holder. */
function Unheld({ cost }: { cost: Cost }) {
  const columns: readonly Column<UnheldRow>[] = [
    {
      key: "model",
      title: "model",
      width: "minmax(120px, 2fr)",
      order: (a, b) => byName(a.model, b.model),
      cell: (row) => row.model,
    },
    figures("cost", { title: priced(cost), digits: 2 }),
    figures("unheld_gpu_hours", {
      title: "GPU hours",
      digits: 1,
    }),
    figures("unusable_gpu_hours", {
      title: "not usable",
      digits: 1,
      wideOnly: true,
    }),
    figures("energy_kwh", {
      title: "kWh",
      digits: 1,
      wideOnly: true,
    }),
  ];
  return (
    <>
      <h2>Not held</h2>
      <div class="bounded-table">
        <Table
          label="Not held"
          columns={columns}
          rows={cost.unheld ?? []}
          keyOf={(row) => row.model}
        />
      </div>
    </>
  );
}

function priced(cost: Cost): string {
  return cost.currency ? `Cost, ${cost.currency}` : "Cost";
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function nameOf(row: CostRow, group: GroupBy): string {
  return group === "job" ? `${row.namespace}/${row.job}` : row[group];
}

/** A column of figures, for rows of either kind. */
function figures<K extends string>(
  key: K,
  options: { title: string; digits: number; wideOnly?: boolean },
): Column<Readonly<Record<K, number | null>>> {
  return {
    key,
    title: options.title,
    width: "minmax(88px, 0.8fr)",
    numeric: true,
    wideOnly: options.wideOnly ?? false,
    order: (a, b) => (a[key] ?? 0) - (b[key] ?? 0),
    cell: (row) => figure(row[key], options.digits),
  };
}

function download(content: Blob, name: string): void {
  const address = URL.createObjectURL(content);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
