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

test("what is complete leaves nothing of before", () => {
  const cluster = new Cluster();
  cluster.takeNodes({ changed: [node("a"), node("b")], removed: [] }, true);
  cluster.takeNodes({ changed: [node("c")], removed: [] }, true);
  assert.deepEqual([...cluster.nodes.keys()], ["c"]);
  cluster.takeJobs({ changed: [job("x"), job("y")], removed: [] }, true);
  cluster.takeJobs({ changed: [job("y")], removed: [] }, true);
  assert.deepEqual([...cluster.jobs.keys()], ["team/y"]);
});

test("what changes leaves the others", () => {
  const cluster = new Cluster();
  cluster.takeJobs({ changed: [job("x"), job("y")], removed: [] }, true);
  cluster.takeJobs({ changed: [job("z")], removed: [job("x")] }, false);
  assert.deepEqual([...cluster.jobs.keys()], ["team/y", "team/z"]);
});

test("the map is told which nodes changed, and to begin anew where there are others", () => {
  const cluster = new Cluster();
  const told: (readonly string[] | null)[] = [];
  cluster.onNodes((changed) => told.push(changed));
  cluster.takeNodes({ changed: [node("a"), node("b")], removed: [] }, true);
  cluster.takeNodes({ changed: [node("b")], removed: [] }, false);
  cluster.takeNodes({ changed: [node("b", 2)], removed: [] }, false);
  cluster.takeNodes({ changed: [], removed: ["a"] }, false);
  cluster.takeNodes({ changed: [node("b", 2)], removed: [] }, true);
  assert.deepEqual(told, [null, ["b"], null, null, ["b"]]);
});

test("nothing of one person stays for another", () => {
  const cluster = new Cluster();
  cluster.takeNodes({ changed: [node("a")], removed: [] }, true);
  cluster.takeJobs({ changed: [job("x")], removed: [] }, true);
  cluster.clear();
  assert.equal(cluster.nodes.size + cluster.jobs.size + cluster.holders.value.size, 0);
  assert.equal(cluster.nodesKnown.value || cluster.jobsKnown.value, false);
});
