// SPDX-License-Identifier: Apache-2.0
/** One node: its GPUs and their holders. */

import type { Device, Holder } from "../contract.ts";
import { count, mebibytes, memory, percent, power, temperature } from "../format.ts";
import { modelOf } from "../heat/measures.ts";
import { cluster } from "../live/cluster.ts";
import { useHolders } from "../live/holders.ts";
import { Empty, Loading } from "../parts/notice.tsx";
import { Phase } from "../parts/phase.tsx";
import { format } from "../route.ts";

export function NodeView({ name }: { name: string }) {
  const problem = useHolders();
  return (
    <main class="view" id="main" tabIndex={-1}>
      <p class="crumbs">
        <a href={format("nodes")}>Nodes</a>
      </p>
      <NodePanel name={name} heading="h1" />
      {problem && <p class="muted">Holders of GPUs: {problem.detail}</p>}
    </main>
  );
}

export function NodePanel({ name, heading = "h2" }: { name: string; heading?: "h1" | "h2" }) {
  const Heading = heading;
  void cluster.nodesVersion.value;
  const node = cluster.nodes.get(name);
  if (!name)
    return <Empty title="No node is selected">Select a GPU in the map to see its node.</Empty>;
  if (!node && !cluster.nodesKnown.value) return <Loading what={name} />;
  if (!node)
    return <Empty title={`Node ${name} does not exist`}>It may have left the cluster.</Empty>;
  const simulated = node.devices.some((device) => device.simulated);
  return (
    <>
      <Heading class="node-name">
        {heading === "h1" ? name : <a href={format("nodes", name)}>{name}</a>}
      </Heading>
      <p class="muted">
        {node.gpu_type} · {count(node.total_gpus, "GPU")}
        {simulated && " (simulated)"} · {node.ready ? "ready" : "not ready"} ·{" "}
        {percent(node.utilization)} allocated
      </p>
      <ul class="gpus">
        {node.devices.map((device) => (
          <li key={device.uuid}>
            <Gpu device={device} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Gpu({ device }: { device: Device }) {
  const holders = cluster.holders.value;
  const allocated = device.given_percent;
  const held = holders.get(device.uuid) ?? [];
  return (
    <>
      <div class="gpu-head">
        <b title={device.uuid}>GPU {device.index}</b>
        <span class="muted">{modelOf(device)}</span>
        <Phase of={device.health} />
      </div>
      <div class="gpu-given">
        <Meter value={allocated} label={`Allocated part of GPU ${device.index}`} />
        <span class="numeric">{percent(allocated)}</span>
      </div>
      <dl class="gpu-facts">
        <div>
          <dt>Busy</dt>
          <dd>{percent(device.busy_percent)}</dd>
        </div>
        <div>
          <dt>Temperature</dt>
          <dd>{temperature(device.temperature_celsius)}</dd>
        </div>
        <div>
          <dt>Power</dt>
          <dd>{power(device.power_watts)}</dd>
        </div>
        <div>
          <dt>Free</dt>
          <dd>
            {memory(mebibytes(device.free_memory_gb))} of {memory(mebibytes(device.memory_gb))}
          </dd>
        </div>
      </dl>
      {held.length > 0 && (
        <ul class="gpu-held">
          {held.map((each) => (
            <li key={`${each.namespace}/${each.pod}`}>
              <Held holder={each} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Held({ holder }: { holder: Holder }) {
  const name = `${holder.namespace}/${holder.job || holder.pod}`;
  return (
    <>
      {holder.job ? <a href={format("jobs", holder.namespace, holder.job)}>{name}</a> : name}{" "}
      <span class="muted">
        {holder.worker !== null && `worker ${holder.worker}, pod ${holder.pod}, `}
        {holder.percent < 100
          ? `${percent(holder.percent)}, ${memory(holder.memory_mib)}, ${holder.isolation}`
          : "whole"}
      </span>
    </>
  );
}

export function Meter({ value, label }: { value: number; label: string }) {
  return (
    <span
      class="meter"
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(value)}
    >
      <span style={{ width: `${Math.min(value, 100)}%` }} />
    </span>
  );
}
