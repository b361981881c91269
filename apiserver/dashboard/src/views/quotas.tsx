// SPDX-License-Identifier: Apache-2.0
/** Quotas and their usage: now, and in the last hour. */

import { useMemo } from "preact/hooks";
import type { Quota, QuotaHistory, QuotaSeries } from "../contract.ts";
import { amount, byName, count, duration, figure, whole } from "../format.ts";
import { useCall } from "../parts/call.ts";
import { Chart } from "../parts/chart.tsx";
import { Nothing } from "../parts/nothing.tsx";
import { Empty, Loading, Missing } from "../parts/notice.tsx";
import { Scope, scope } from "../parts/scope.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { ReservationsSection } from "./reservations.tsx";

const CHARTS = 24;

interface Quotas {
  readonly quotas: readonly Quota[];
  readonly may_list: boolean;
}

const COLUMNS: readonly Column<Quota>[] = [
  {
    key: "namespace",
    title: "Namespace",
    width: "minmax(80px, 2fr)",
    order: (a, b) => byName(a.namespace, b.namespace),
    cell: (quota) => quota.namespace,
  },
  {
    key: "cohort",
    title: "Cohort",
    width: "minmax(80px, 1fr)",
    wideOnly: true,
    order: (a, b) => byName(a.cohort, b.cohort),
    cell: (quota) => quota.cohort || <span class="muted">the cluster</span>,
  },
  {
    key: "share",
    title: "Usage of the quota",
    width: "minmax(70px, 2fr)",
    cell: (quota) => <Use quota={quota} />,
  },
  numeric("used", "Used"),
  numeric("nominal", "Nominal"),
  numeric("borrowed", "Borrowed", true),
  numeric("lent", "Lent", true),
  { ...numeric("running", "Running", true), cell: (quota) => quota.running },
  { ...numeric("waiting", "Waiting", true), cell: (quota) => quota.waiting },
  {
    key: "order",
    title: "Job order",
    width: "minmax(60px, 110px)",
    wideOnly: true,
    cell: (quota) => quota.job_order,
  },
  {
    key: "longest",
    title: "Max. run time",
    width: "90px",
    wideOnly: true,
    numeric: true,
    cell: (quota) => (quota.max_run_seconds === null ? "" : duration(quota.max_run_seconds)),
  },
];

export function QuotasView() {
  const query = { namespace: scope.value };
  const now = useCall<Quotas>("quotas", query, 10);
  const past = useCall<QuotaHistory>("quotas/history", { ...query, limit: CHARTS }, 15);
  const problems = now.value?.quotas.filter((quota) => quota.problem) ?? [];
  return (
    <main class="view" id="main" tabIndex={-1}>
      <div class="view-head">
        <h1>Quotas</h1>
        <span class="muted">{now.value && count(now.value.quotas.length, "quota")}</span>
        <Scope />
      </div>
      {now.problem && !now.value ? (
        <Missing what="Quotas" problem={now.problem} again={now.again} />
      ) : !now.value ? (
        <Loading what="Quotas" />
      ) : now.value.quotas.length === 0 ? (
        <Nothing
          what="quotas"
          kind="GPUQuotas"
          mayList={now.value.may_list}
          title="There are no quotas that you may see"
        >
          Without a GPUQuota a namespace has no guaranteed GPUs, and borrows idle ones.
        </Nothing>
      ) : (
        <>
          {problems.map((quota) => (
            <p class="message" key={quota.namespace}>
              <b>{quota.namespace}</b>: {quota.problem}
            </p>
          ))}
          <div class="bounded-table">
            <Table
              label="Quotas"
              columns={COLUMNS}
              rows={now.value.quotas}
              keyOf={(quota) => quota.namespace}
              sort="namespace"
            />
          </div>
          <ReservationsSection />
          <h2>The last hour</h2>
          {past.problem && !past.value ? (
            <Missing what="History" problem={past.problem} again={past.again} />
          ) : past.value ? (
            <Past history={past.value} />
          ) : (
            <Loading what="History" />
          )}
        </>
      )}
    </main>
  );
}

function Past({ history }: { history: QuotaHistory }) {
  const times = useMemo(() => history.timestamps.map((each) => Date.parse(each)), [history]);
  if (times.length === 0) {
    return <Empty title="No history yet">The server has just started.</Empty>;
  }
  return (
    <>
      <div class="charts">
        {history.quotas.map((series) => (
          <Chart
            key={series.namespace}
            title={series.namespace}
            note={`GPUs${series.cohort && ` · ${series.cohort}`}`}
            times={times}
            series={linesOf(series)}
            format={figure}
            height={130}
          />
        ))}
      </div>
      {history.total > history.quotas.length && (
        <p class="muted">
          {whole(history.quotas.length)} of {count(history.total, "quota")} by name; name a
          namespace to see another.
        </p>
      )}
    </>
  );
}

function linesOf(series: QuotaSeries) {
  return [
    { name: "used", values: series.used },
    { name: "borrowed", values: series.borrowed },
    { name: "nominal", values: series.nominal, bound: true },
  ];
}

/** Usage within the nominal quota, borrowed usage, and the nominal quota. */
function Use({ quota }: { quota: Quota }) {
  const used = amount(quota.used);
  const nominal = amount(quota.nominal);
  const most = Math.max(used, nominal, 1e-9);
  const borrowed = Math.min(amount(quota.borrowed), used);
  const label = `${quota.used || 0} used of ${quota.nominal || 0} nominal, ${quota.borrowed || 0} borrowed`;
  return (
    <span class="use" role="img" aria-label={label} title={label}>
      <span class="use-own" style={{ width: `${((used - borrowed) / most) * 100}%` }} />
      <span class="use-borrowed" style={{ width: `${(borrowed / most) * 100}%` }} />
      <span class="use-nominal" style={{ left: `${(nominal / most) * 100}%` }} />
    </span>
  );
}

function numeric(key: keyof Quota, title: string, wideOnly = false): Column<Quota> {
  return {
    key,
    title,
    width: "66px",
    numeric: true,
    wideOnly,
    order: (a, b) => amount(String(a[key])) - amount(String(b[key])),
    cell: (quota) => quota[key] || "0",
  };
}
