// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Job, Node } from "../../../apiserver/dashboard/src/contract.ts";
import { Cluster } from "../../../apiserver/dashboard/src/live/cluster.ts";

function node(name: string, devices = 1): Node {
  const device = { uuid: name, index: 0 };
  return { node_name: name, devices: Array(devices).fill(device) } as unknown as Node;
}

function job(name: string): Job {
  return { namespace: "team", name } as Job;
}

test("a complete list replaces all earlier nodes and jobs", () => {
  const cluster = new Cluster();
  cluster.updateNodes({ changed: [node("a"), node("b")], removed: [] }, true);
  cluster.updateNodes({ changed: [node("c")], removed: [] }, true);
  assert.deepEqual([...cluster.nodes.keys()], ["c"]);
  cluster.updateJobs({ changed: [job("x"), job("y")], removed: [] }, true);
  cluster.updateJobs({ changed: [job("y")], removed: [] }, true);
  assert.deepEqual([...cluster.jobs.keys()], ["team/y"]);
});

test("a change keeps the other nodes and jobs", () => {
  const cluster = new Cluster();
  cluster.updateJobs({ changed: [job("x"), job("y")], removed: [] }, true);
  cluster.updateJobs({ changed: [job("z")], removed: [job("x")] }, false);
  assert.deepEqual([...cluster.jobs.keys()], ["team/y", "team/z"]);
});

test("listeners get the names of changed nodes, or null if the set of nodes changed", () => {
  const cluster = new Cluster();
  const notified: (readonly string[] | null)[] = [];
  cluster.onNodes((changed) => notified.push(changed));
  cluster.updateNodes({ changed: [node("a"), node("b")], removed: [] }, true);
  cluster.updateNodes({ changed: [node("b")], removed: [] }, false);
  cluster.updateNodes({ changed: [node("b", 2)], removed: [] }, false);
  cluster.updateNodes({ changed: [], removed: ["a"] }, false);
  cluster.updateNodes({ changed: [node("b", 2)], removed: [] }, true);
  assert.deepEqual(notified, [null, ["b"], null, null, ["b"]]);
});

test("clear removes everything that another caller saw", () => {
  const cluster = new Cluster();
  cluster.updateNodes({ changed: [node("a")], removed: [] }, true);
  cluster.updateJobs({ changed: [job("x")], removed: [] }, true);
  cluster.clear();
  assert.equal(cluster.nodes.size + cluster.jobs.size + cluster.holders.value.size, 0);
  assert.equal(cluster.nodesKnown.value || cluster.jobsKnown.value, false);
});
