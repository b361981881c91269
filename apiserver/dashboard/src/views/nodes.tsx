// SPDX-License-Identifier: Apache-2.0
/** All nodes as a table. */

import { useMemo, useState } from "preact/hooks";
import type { Node } from "../contract.ts";
import { byName, count, mebibytes, memory, percent, temperature } from "../format.ts";
import { HEALTHS } from "../heat/colours.ts";
import { cluster } from "../live/cluster.ts";
import { problems } from "../live/feed.ts";
import { Empty, Loading, Missing } from "../parts/notice.tsx";
import { Phase } from "../parts/phase.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { format } from "../route.ts";
import { Meter } from "./node.tsx";

const COLUMNS: readonly Column<Node>[] = [
  {
    key: "name",
    title: "Node",
    width: "minmax(110px, 2fr)",
    order: (a, b) => byName(a.node_name, b.node_name),
    cell: (node) => <a href={format("nodes", node.node_name)}>{node.node_name}</a>,
  },
  {
    key: "model",
    title: "Model",
    width: "minmax(80px, 1.5fr)",
    order: (a, b) => byName(a.gpu_type, b.gpu_type),
    cell: (node) => node.gpu_type + (simulated(node) ? " (simulated)" : ""),
  },
  {
    key: "allocated",
    title: "Allocated",
    width: "minmax(84px, 1.2fr)",
    order: (a, b) => a.utilization - b.utilization,
    cell: (node) => (
      <span class="with-meter">
        <Meter value={node.utilization} label={`Allocated part of ${node.node_name}`} />
        <span class="numeric">{percent(node.utilization)}</span>
      </span>
    ),
  },
  {
    key: "free",
    title: "Free",
    width: "68px",
    numeric: true,
    order: (a, b) => a.available_gpus - b.available_gpus,
    cell: (node) => `${node.available_gpus} of ${node.total_gpus}`,
  },
  {
    key: "memory",
    title: "Memory each",
    width: "96px",
    numeric: true,
    wideOnly: true,
    order: (a, b) => a.memory_per_gpu - b.memory_per_gpu,
    cell: (node) => memory(mebibytes(node.memory_per_gpu)),
  },
  {
    key: "hottest",
    title: "Hottest",
    width: "84px",
    numeric: true,
    wideOnly: true,
    order: (a, b) => (hottest(a) ?? -1) - (hottest(b) ?? -1),
    cell: (node) => {
      const known = hottest(node);
      return known === null ? <span class="muted">unknown</span> : temperature(known);
    },
  },
  {
    key: "health",
    title: "Health",
    width: "minmax(110px, 1.2fr)",
    wideOnly: true,
    order: (a, b) => HEALTHS.indexOf(worst(a)) - HEALTHS.indexOf(worst(b)),
    cell: (node) => (node.ready ? <Phase of={worst(node)} /> : "not ready"),
  },
];

export function NodesView() {
  const [search, setSearch] = useState("");
  const words = search.trim().toLowerCase();
  const version = cluster.nodesVersion.value;
  const rows = useMemo(() => {
    const all = [...cluster.nodes.values()];
    return words ? all.filter((node) => has(node, words)) : all;
  }, [version, words]);
  const problem = problems.value["nodes"];
  return (
    <main class="view fills" id="main" tabIndex={-1}>
      <div class="view-head">
        <h1>Nodes</h1>
        <span class="muted">{cluster.nodesKnown.value && count(rows.length, "node")}</span>
        <label class="search">
          <span class="visually-hidden">Find a node or model</span>
          <input
            type="search"
            placeholder="Node or model"
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </label>
      </div>
      {problem ? (
        <Missing what="Nodes" problem={problem} />
      ) : !cluster.nodesKnown.value ? (
        <Loading what="Nodes" rows={12} />
      ) : rows.length === 0 ? (
        <Empty title={words ? "No node matches" : "No node has GPUs"} />
      ) : (
        <Table
          label="Nodes"
          columns={COLUMNS}
          rows={rows}
          keyOf={(node) => node.node_name}
          sort="name"
        />
      )}
    </main>
  );
}

function has(node: Node, words: string): boolean {
  return `${node.node_name} ${node.gpu_type}`.toLowerCase().includes(words);
}

function simulated(node: Node): boolean {
  return node.devices.some((device) => device.simulated);
}

function hottest(node: Node): number | null {
  const known = node.devices.flatMap((device) => device.temperature_celsius ?? []);
  return known.length > 0 ? Math.max(...known) : null;
}

function worst(node: Node) {
  return (
    HEALTHS.findLast((health) => node.devices.some((each) => each.health === health)) ?? "Healthy"
  );
}
