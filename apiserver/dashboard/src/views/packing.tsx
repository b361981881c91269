// SPDX-License-Identifier: Apache-2.0
/** Packing of GPUs: allocation and fragmentation over the last hour, and free GPUs now. */

import { useMemo } from "preact/hooks";
import type { Monitoring, Sample } from "../contract.ts";
import { byName, count, figure, percent, whole } from "../format.ts";
import { cluster } from "../live/cluster.ts";
import { problems } from "../live/feed.ts";
import { useCall } from "../parts/call.ts";
import { Chart } from "../parts/chart.tsx";
import { Empty, Loading, Missing } from "../parts/notice.tsx";

export function PackingView() {
  const { value, problem, again } = useCall<Monitoring>("monitoring", {}, 10);
  return (
    <main class="view" id="main" tabIndex={-1}>
      <div class="view-head">
        <h1>Packing</h1>
        <span class="muted">the last hour, as sampled by this server</span>
      </div>
      {problem && !value ? (
        <Missing what="Packing" problem={problem} again={again} />
      ) : !value ? (
        <Loading what="Packing" />
      ) : value.history.length === 0 ? (
        <Empty title="No samples yet">The server has just started.</Empty>
      ) : (
        <Past history={value.history} />
      )}
      <h2>Free GPUs now</h2>
      <FreeGpus />
    </main>
  );
}

function Past({ history }: { history: readonly Sample[] }) {
  const times = useMemo(() => history.map((each) => Date.parse(each.timestamp)), [history]);
  const of = (name: keyof Sample) =>
    history.map((each) => {
      const value = each[name];
      return typeof value === "number" ? value : null;
    });
  return (
    <div class="charts">
      <Chart
        title="Allocated"
        times={times}
        format={percent}
        max={100}
        series={[
          { name: "GPUs", values: of("gpu_utilization") },
          { name: "memory", values: of("gpu_memory_usage") },
        ]}
      />
      <Chart
        title="Fragmentation"
        note="free GPUs outside fully free nodes"
        times={times}
        format={percent}
        max={100}
        series={[{ name: "of the free GPUs", values: of("fragmentation") }]}
      />
      <Chart
        title="Whole GPUs free"
        note="including nodes that are not ready"
        times={times}
        format={(value) => figure(value, 0)}
        series={[{ name: "free", values: of("available_gpus") }]}
      />
      <Chart
        title="Jobs"
        note="of all namespaces, including those that you may not list"
        times={times}
        format={(value) => figure(value, 0)}
        series={[
          { name: "running", values: of("running_jobs") },
          { name: "waiting", values: of("waiting_jobs") },
        ]}
      />
    </div>
  );
}

/** Number of nodes by free whole GPUs, for each model: what the next job can use. */
function FreeGpus() {
  const models = useMemo(() => countFree(), [cluster.nodesVersion.value]);
  const problem = problems.value["nodes"];
  if (problem) return <Missing what="Nodes" problem={problem} />;
  if (!cluster.nodesKnown.value) return <Loading what="Nodes" />;
  if (models.length === 0) return <Empty title="No node has GPUs" />;
  return (
    <div class="free-gpus">
      {models.map(([model, free]) => (
        <FreeGpusOfModel key={model} model={model} free={free} />
      ))}
    </div>
  );
}

function FreeGpusOfModel({ model, free }: { model: string; free: readonly number[] }) {
  const max = Math.max(...free, 1);
  return (
    <table class="free-gpus-of-model">
      <caption>
        {model} <span class="muted">· {count(sum(free), "node")}</span>
      </caption>
      <thead>
        <tr>
          <th scope="col">Free on a node</th>
          <th scope="col">Nodes</th>
        </tr>
      </thead>
      <tbody>
        {free.map((nodes, gpus) => (
          <tr key={gpus}>
            <th scope="row">{count(gpus, "GPU")}</th>
            <td>
              <span class="free-gpus-bar" style={{ width: `${(nodes / max) * 75}%` }} />
              {whole(nodes)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function countFree(): [string, number[]][] {
  const found = new Map<string, number[]>();
  for (const node of cluster.nodes.values()) {
    const free = found.get(node.gpu_type) ?? [];
    found.set(node.gpu_type, free);
    while (free.length <= node.total_gpus) free.push(0);
    const gpus = node.ready ? node.available_gpus : 0;
    free[gpus] = (free[gpus] ?? 0) + 1;
  }
  return [...found].sort(([a], [b]) => byName(a, b));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, each) => all + each, 0);
}
