// SPDX-License-Identifier: Apache-2.0
/** Overview of the cluster: figures, a map of all GPUs, and the selected node. */

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { Node } from "../contract.ts";
import { byName, count, percent, temperature, whole } from "../format.ts";
import {
  COLOURED_TENANTS,
  EMPTY,
  HEALTHS,
  healthColour,
  shade,
  tenantColour,
} from "../heat/colours.ts";
import { CELLS, type Place } from "../heat/layout.ts";
import { HeatMap } from "../heat/map.tsx";
import {
  COLD,
  described,
  HOT,
  MEASURES,
  type Measure,
  type Ranks,
  ranked,
} from "../heat/measures.ts";
import { cluster } from "../live/cluster.ts";
import { problems } from "../live/feed.ts";
import { useHolders } from "../live/holders.ts";
import { Empty, Loading, Missing } from "../parts/notice.tsx";
import { Phase } from "../parts/phase.tsx";
import { theme } from "../theme.ts";
import { NodePanel } from "./node.tsx";

/** Note on figures that include jobs which the caller may not list. */
const ALL_NAMESPACES = "in all namespaces";

export function ClusterView() {
  const holderProblem = useHolders();
  const [measure, setMeasure] = useState<Measure>("allocated");
  const [search, setSearch] = useState("");
  const [cell, setCell] = useState(0);
  const [fit, setFit] = useState(0);
  const [place, setPlace] = useState<Place | null>(null);
  const [open, setOpen] = useState("");
  const nodes = useNodes();
  const holders = cluster.holders.value;
  const ranks = useMemo(() => ranked(holders), [holders]);
  const words = search.trim().toLowerCase();
  const wanted = useCallback((node: Node) => matches(node, words), [words, holders]);
  const found = useMemo(() => nodes.some(wanted), [nodes, wanted]);
  const zoom = useCallback(
    (steps: number) =>
      setCell((known) => {
        const from = CELLS.indexOf((known || fit) as (typeof CELLS)[number]);
        return CELLS[Math.min(Math.max(from + steps, 0), CELLS.length - 1)] ?? known;
      }),
    [fit],
  );
  const problem = problems.value["nodes"];
  const pointed = place && nodes[place.node];
  const device = pointed && place && pointed.devices[place.device];
  return (
    <main class="view cluster" id="main" tabIndex={-1}>
      <h1 class="visually-hidden">Cluster</h1>
      <Figures />
      <div class="toolbar">
        <fieldset class="choice">
          <legend class="visually-hidden">Measure of each GPU</legend>
          {MEASURES.map((each) => (
            <label key={each.measure}>
              <input
                type="radio"
                name="measure"
                checked={measure === each.measure}
                onChange={() => setMeasure(each.measure)}
              />
              <span>{each.title}</span>
            </label>
          ))}
        </fieldset>
        <label class="search">
          <span class="visually-hidden">Find a node, model or namespace</span>
          <input
            type="search"
            placeholder="Node, model, namespace"
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </label>
        <span class="zoom">
          <button type="button" aria-label="Smaller" onClick={() => zoom(-1)}>
            −
          </button>
          <button type="button" disabled={cell === 0} onClick={() => setCell(0)}>
            Fit
          </button>
          <button type="button" aria-label="Larger" onClick={() => zoom(1)}>
            +
          </button>
        </span>
        <span role="status" class="muted">
          {nodes.length > 0 && !found && "No match"}
        </span>
      </div>
      <Legend measure={measure} ranks={ranks} />
      <p id="heat-help" class="visually-hidden">
        Arrow keys move from GPU to GPU, Enter shows its node, plus and minus change the size. The
        Nodes view shows the same as a table.
      </p>
      <output id="heat-readout" class="readout" aria-live="polite">
        {device
          ? described(pointed.node_name, device, holders)
          : "Point at a GPU, or use the arrow keys."}
      </output>
      <div class="cluster-parts">
        <div class="cluster-map">
          {problem && <Missing what="Nodes" problem={problem} />}
          {!problem && !cluster.nodesKnown.value && <Loading what="The cluster" rows={12} />}
          {cluster.nodesKnown.value && nodes.length === 0 && (
            <Empty title="No node has GPUs">
              Agents report them; <code>kubectl get gpunodes</code> lists their reports.
            </Empty>
          )}
          {nodes.length > 0 && (
            <HeatMap
              nodes={nodes}
              measure={measure}
              ranks={ranks}
              wanted={wanted}
              cell={cell}
              onFit={setFit}
              place={place}
              onPlace={setPlace}
              onOpen={(at) => {
                setPlace(at);
                setOpen(nodes[at.node]?.node_name ?? "");
              }}
              onZoom={zoom}
            />
          )}
        </div>
        <aside class="cluster-side" aria-label="Node">
          <NodePanel name={open} />
        </aside>
      </div>
      {holderProblem && <p class="muted">Holders of GPUs: {holderProblem.detail}</p>}
    </main>
  );
}

/** Returns the same array as long as the set of nodes is the same. The painter replaces changed nodes in it. */
function useNodes(): Node[] {
  const [shape, setShape] = useState(0);
  useEffect(
    () => cluster.onNodes((changed) => changed === null && setShape((known) => known + 1)),
    [],
  );
  return useMemo(() => {
    const order = (a: Node, b: Node) =>
      byName(a.gpu_type, b.gpu_type) || byName(a.node_name, b.node_name);
    return [...cluster.nodes.values()].sort(order);
  }, [shape]);
}

function matches(node: Node, words: string): boolean {
  if (words === "") return true;
  if (node.node_name.toLowerCase().includes(words)) return true;
  if (node.gpu_type.toLowerCase().includes(words)) return true;
  return node.devices.some((device) =>
    cluster.holders.value.get(device.uuid)?.some((each) => each.namespace.includes(words)),
  );
}

function Figures() {
  const sample = cluster.sample.value;
  const counted = useMemo(() => counts(), [cluster.nodesVersion.value]);
  const known = cluster.nodesKnown.value;
  const shown: readonly [string, string, string?][] = [
    ["GPUs allocated", sample ? percent(sample.gpu_utilization) : "–"],
    ["GPU memory allocated", sample ? percent(sample.gpu_memory_usage) : "–"],
    [
      "Whole GPUs free",
      known ? whole(counted.free) : "–",
      known ? `of ${whole(counted.gpus)}` : "",
    ],
    ["Nodes", known ? whole(counted.nodes) : "–", counted.away ? `${counted.away} not ready` : ""],
    ["Jobs running", sample ? whole(sample.running_jobs) : "–", ALL_NAMESPACES],
    ["Jobs waiting", sample ? whole(sample.waiting_jobs) : "–", ALL_NAMESPACES],
  ];
  return (
    <div class="figures">
      <dl>
        {shown.map(([name, value, more]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              {value} {more && <small>{more}</small>}
            </dd>
          </div>
        ))}
      </dl>
      <p class="figures-note">
        {counted.simulated > 0 &&
          (counted.simulated === counted.gpus
            ? "All GPUs are simulated."
            : `${count(counted.simulated, "GPU")} simulated.`)}
      </p>
    </div>
  );
}

function counts() {
  const found = { nodes: 0, gpus: 0, free: 0, away: 0, simulated: 0 };
  for (const node of cluster.nodes.values()) {
    found.nodes += 1;
    found.gpus += node.devices.length;
    found.free += node.ready ? node.available_gpus : 0;
    found.away += node.ready ? 0 : 1;
    if (node.devices.some((device) => device.simulated)) found.simulated += node.devices.length;
  }
  return found;
}

function Legend({ measure, ranks }: { measure: Measure; ranks: Ranks }) {
  const shown = theme.value;
  if (measure === "health") return <HealthLegend />;
  if (measure === "holder") {
    const named = [...ranks].slice(0, COLOURED_TENANTS);
    return (
      <ul class="legend">
        <Key colour={EMPTY[shown]} name="free" />
        {named.map(([namespace, rank]) => (
          <Key key={namespace} colour={tenantColour(rank, shown)} name={namespace} />
        ))}
        {ranks.size > named.length && (
          <Key
            colour={tenantColour(COLOURED_TENANTS, shown)}
            name={count(ranks.size - named.length, "other namespace")}
          />
        )}
        <Unknown name="not shown to you" />
      </ul>
    );
  }
  const warm = measure === "temperature";
  return (
    <ul class="legend">
      <li>
        {warm ? temperature(COLD) : percent(0)}
        <span class="ramp" aria-hidden="true">
          {Array.from({ length: 16 }, (_, step) => (
            <span
              key={step}
              style={{ background: shade(warm ? "warm" : "cool", step / 15, shown) }}
            />
          ))}
        </span>
        {warm ? temperature(HOT) : percent(100)}
      </li>
      <Unknown name="unknown" />
      <Unhealthy />
    </ul>
  );
}

function Key({ colour, name }: { colour: string; name: string }) {
  return (
    <li>
      <span class="swatch" aria-hidden="true" style={{ background: colour }} />
      {name}
    </li>
  );
}

function Unknown({ name }: { name: string }) {
  return (
    <li>
      <span class="swatch swatch-unknown" aria-hidden="true" />
      {name}
    </li>
  );
}

function HealthLegend() {
  const counted = useMemo(() => healths(), [cluster.nodesVersion.value]);
  return (
    <ul class="legend">
      {HEALTHS.map((health) => (
        <li key={health}>
          <span
            class="swatch"
            aria-hidden="true"
            style={{ background: healthColour(health, theme.value) }}
          />
          <Phase of={health} /> {whole(counted.get(health) ?? 0)}
        </li>
      ))}
    </ul>
  );
}

function Unhealthy() {
  const counted = useMemo(() => healths(), [cluster.nodesVersion.value]);
  return HEALTHS.filter((health) => health !== "Healthy" && counted.has(health)).map((health) => (
    <li key={health}>
      <Phase of={health} /> {whole(counted.get(health) ?? 0)}
    </li>
  ));
}

function healths(): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const node of cluster.nodes.values()) {
    for (const device of node.devices) {
      found.set(device.health, (found.get(device.health) ?? 0) + 1);
    }
  }
  return found;
}
