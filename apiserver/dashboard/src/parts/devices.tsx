// SPDX-License-Identifier: Apache-2.0
/** Nodes with the GPUs of workers, as small pictures. */

import type { Worker } from "../contract.ts";
import { byName, count, memory, percent } from "../format.ts";
import { cluster } from "../live/cluster.ts";
import { format } from "../route.ts";

interface Taken {
  readonly percent: number;
  readonly memory_mib: number;
  readonly worker: number;
  readonly pod: string;
}

const SHOWN_NODES = 64;

export function Workers({ workers }: { workers: readonly Worker[] }) {
  const nodes = [...Map.groupBy(workers, (each) => each.node)].sort(([a], [b]) => byName(a, b));
  return (
    <>
      <ul class="placed">
        {nodes.slice(0, SHOWN_NODES).map(([name, mine]) => (
          <li key={name}>
            <PlacedNode name={name} workers={mine} />
          </li>
        ))}
      </ul>
      {nodes.length > SHOWN_NODES && (
        <p class="muted">and {count(nodes.length - SHOWN_NODES, "more node")}</p>
      )}
    </>
  );
}

function PlacedNode({ name, workers }: { name: string; workers: readonly Worker[] }) {
  const taken = new Map<number, Taken>();
  let unlisted = 0;
  for (const { worker, pod, devices } of workers) {
    for (const each of devices) {
      if (each.index === null) unlisted += 1;
      else taken.set(each.index, { ...each, worker, pod });
    }
  }
  const indices = (cluster.nodes.get(name)?.devices ?? []).map((each) => each.index);
  const all = [...new Set([...indices, ...taken.keys()])].sort((a, b) => a - b);
  const whose = workers.map((each) => each.worker);
  return (
    <>
      <a href={format("nodes", name)}>{name}</a>{" "}
      <span class="muted">
        {whose.length > 4
          ? count(whose.length, "worker")
          : `worker${whose.length > 1 ? "s" : ""} ${whose.join(", ")}`}
      </span>
      <div class="placed-gpus">
        {all.map((index) => (
          <PlacedGpu key={index} index={index} taken={taken.get(index)} />
        ))}
      </div>
      {unlisted > 0 && <p class="muted">{count(unlisted, "GPU")} not listed by the node now</p>}
    </>
  );
}

function PlacedGpu({ index, taken }: { index: number; taken: Taken | undefined }) {
  if (!taken) {
    return (
      <span class="placed-gpu" aria-hidden="true">
        {index}
      </span>
    );
  }
  const part =
    taken.percent < 100 ? `, ${percent(taken.percent)}, ${memory(taken.memory_mib)}` : "";
  const pod = taken.pod && `, pod ${taken.pod}`;
  const said = `GPU ${index} for worker ${taken.worker}${pod}${part}`;
  return (
    <span class="placed-gpu placed-taken" title={said}>
      <span aria-hidden="true">{index}</span>
      <span class="visually-hidden">{said}. </span>
      {taken.percent < 100 && (
        <span
          class="placed-part"
          aria-hidden="true"
          style={{ height: `${100 - taken.percent}%` }}
        />
      )}
    </span>
  );
}
