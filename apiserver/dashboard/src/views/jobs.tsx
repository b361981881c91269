// SPDX-License-Identifier: Apache-2.0
/** Lists of all jobs, and of pending jobs with the reason why they wait. */

import { useMemo, useState } from "preact/hooks";
import { PHASES } from "../choices.ts";
import { minutes } from "../clock.ts";
import type { Job, Queue, Waiting } from "../contract.ts";
import { age, byName, count, shownOf } from "../format.ts";
import { cluster, keyOf } from "../live/cluster.ts";
import { problems } from "../live/feed.ts";
import { useAnswer } from "../parts/call.ts";
import { Nothing } from "../parts/nothing.tsx";
import { Loading, Missing } from "../parts/notice.tsx";
import { Phase } from "../parts/phase.tsx";
import { Scope, scope } from "../parts/scope.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { queue, rowKey } from "../queue.ts";
import { format } from "../route.ts";

const NAME: Column<Job> = {
  key: "name",
  title: "Job",
  width: "minmax(92px, 2fr)",
  order: (a, b) => byName(keyOf(a), keyOf(b)),
  cell: (job) => (
    <a href={format("jobs", job.namespace, job.name)}>
      <span class="muted">{job.namespace}/</span>
      {job.name}
    </a>
  ),
};

const AGE: Column<Job> = {
  key: "age",
  title: "Age",
  width: "96px",
  numeric: true,
  wideOnly: true,
  order: (a, b) => (b.created ?? "").localeCompare(a.created ?? ""),
  cell: (job) => age(job.created, minutes.value),
};

const GPUS: Column<Job> = {
  key: "gpus",
  title: "GPUs",
  width: "44px",
  numeric: true,
  order: (a, b) => Number.parseFloat(`${a.gpus}`) - Number.parseFloat(`${b.gpus}`) || 0,
  cell: (job) => job.gpus,
};

const ALL: readonly Column<Job>[] = [
  NAME,
  {
    key: "phase",
    title: "Phase",
    width: "minmax(104px, 0.8fr)",
    order: (a, b) => a.phase.localeCompare(b.phase),
    cell: (job) => <Phase of={job.phase} />,
  },
  GPUS,
  {
    key: "nodes",
    title: "Nodes",
    width: "minmax(110px, 1.4fr)",
    wideOnly: true,
    cell: (job) => job.nodes.replaceAll(",", ", "),
  },
  {
    key: "says",
    title: "Result or reason",
    width: "minmax(140px, 2fr)",
    wideOnly: true,
    cell: (job) => job.result || job.reason,
  },
  AGE,
];

const WAITING: readonly Column<Waiting>[] = [
  {
    key: "position",
    title: "#",
    width: "52px",
    numeric: true,
    cell: (row) => row.position ?? "",
  },
  {
    key: "priority",
    title: "Priority",
    width: "76px",
    numeric: true,
    wideOnly: true,
    cell: (job) => job.priority,
  },
  { ...NAME, title: "Job or pod", order: undefined as never, cell: waitingName },
  { ...GPUS, order: undefined as never },
  {
    key: "why",
    title: "Why it waits",
    width: "minmax(120px, 4fr)",
    cell: (job) => (
      <span class="two-lines" title={job.message}>
        {job.message || job.reason || "not considered yet"}
      </span>
    ),
  },
  { ...AGE, title: "Waiting time", order: undefined as never },
];

function waitingName(row: Waiting) {
  if (row.kind !== "Pod") {
    return NAME.cell(row);
  }
  return (
    <span>
      <span class="muted">{row.namespace}/pod/</span>
      {row.name}
    </span>
  );
}

export function JobsView() {
  const [phase, setPhase] = useState("");
  const version = cluster.jobsVersion.value;
  const rows = useMemo(
    () => [...cluster.jobs.values()].filter((job) => phase === "" || job.phase === phase),
    [version, phase],
  );
  const problem = problems.value["jobs"];
  return (
    <main class="view fills" id="main" tabIndex={-1}>
      <div class="view-head">
        <h1>Jobs</h1>
        <span class="muted">{cluster.jobsKnown.value && count(rows.length, "job")}</span>
        <label>
          Phase{" "}
          <select value={phase} onChange={(event) => setPhase(event.currentTarget.value)}>
            <option value="">all</option>
            {PHASES.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <Scope />
      </div>
      {problem ? (
        <Missing what="Jobs" problem={problem} />
      ) : !cluster.jobsKnown.value ? (
        <Loading what="Jobs" rows={12} />
      ) : rows.length === 0 ? (
        <Nothing
          what="jobs"
          kind="GPUJobs"
          mayList={cluster.jobs.size > 0 || scope.value !== "" || null}
          title={phase ? `No job is ${phase}` : "There are no jobs that you may see"}
        >
          Create a GPUJob with <code>kubectl apply</code>.
        </Nothing>
      ) : (
        <Table label="Jobs" columns={ALL} rows={rows} keyOf={keyOf} sort="age" />
      )}
    </main>
  );
}

export function QueueView() {
  const namespace = scope.value;
  const { value, problem, loading, again } = useAnswer<Queue>(
    `queue ${namespace}`,
    (signal) => queue(namespace, signal),
    5,
  );
  return (
    <main class="view fills" id="main" tabIndex={-1}>
      <div class="view-head">
        <h1>Queue</h1>
        <span class="muted">
          {value && shownOf(value.total, cluster.sample.value?.waiting_jobs ?? 0)}
        </span>
        <Scope />
      </div>
      {problem && !value ? (
        <Missing what="Queue" problem={problem} again={again} />
      ) : loading || !value ? (
        <Loading what="The queue" rows={8} />
      ) : value.waiting.length === 0 ? (
        <Nothing
          what="jobs"
          kind="GPUJobs"
          mayList={value.may_list}
          title="No job or pod that you may see waits"
        >
          Each has its GPUs or has ended.
        </Nothing>
      ) : (
        <Table label="Queue" columns={WAITING} rows={value.waiting} keyOf={rowKey} tall />
      )}
    </main>
  );
}
