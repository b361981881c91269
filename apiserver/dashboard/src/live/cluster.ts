// SPDX-License-Identifier: Apache-2.0
/**
 * The state of the cluster, kept up to date by the server's events.
 *
 * Nodes and jobs are in maps that change in place: copies of 5,000 nodes each second would cost
 * more than drawing them. Views follow the version signals; the heat map is notified of changed nodes.
 */

import { batch, signal } from "@preact/signals";
import type { Holder, Job, JobName, Node, Sample } from "../contract.ts";

export interface NodeChanges {
  readonly changed: readonly Node[];
  readonly removed: readonly string[];
}

export interface JobChanges {
  readonly changed: readonly Job[];
  readonly removed: readonly JobName[];
}

/** Receives the names of nodes whose figures changed. null: the set of nodes changed. */
export type NodeListener = (changed: readonly string[] | null) => void;

export class Cluster {
  readonly nodes = new Map<string, Node>();
  readonly jobs = new Map<string, Job>();
  /** Holders by device UUID. */
  readonly holders = signal<ReadonlyMap<string, readonly Holder[]>>(new Map());
  readonly nodesVersion = signal(0);
  readonly jobsVersion = signal(0);
  readonly nodesKnown = signal(false);
  readonly jobsKnown = signal(false);
  readonly sample = signal<Sample | null>(null);
  #listeners = new Set<NodeListener>();

  /** @param complete whether `changed` has all nodes, so that others have left. */
  updateNodes(changes: NodeChanges, complete: boolean): void {
    const before = this.nodes.size;
    const gone = complete
      ? absent(
          this.nodes,
          changes.changed.map((each) => each.node_name),
        )
      : [];
    for (const name of [...gone, ...changes.removed]) this.nodes.delete(name);
    const removed = before - this.nodes.size;
    let reshaped = removed > 0;
    for (const node of changes.changed) {
      reshaped ||= this.nodes.get(node.node_name)?.devices.length !== node.devices.length;
      this.nodes.set(node.node_name, node);
    }
    batch(() => {
      this.nodesVersion.value += 1;
      this.nodesKnown.value = true;
    });
    this.#notify(reshaped ? null : changes.changed.map((each) => each.node_name));
  }

  updateJobs(changes: JobChanges, complete: boolean): void {
    const gone = complete ? absent(this.jobs, changes.changed.map(keyOf)) : [];
    for (const key of [...gone, ...changes.removed.map(keyOf)]) this.jobs.delete(key);
    for (const job of changes.changed) this.jobs.set(keyOf(job), job);
    batch(() => {
      this.jobsVersion.value += 1;
      this.jobsKnown.value = true;
    });
  }

  updateHolders(all: readonly Holder[]): void {
    const byDevice = new Map<string, Holder[]>();
    for (const holder of all) {
      const known = byDevice.get(holder.uuid);
      if (known) known.push(holder);
      else byDevice.set(holder.uuid, [holder]);
    }
    this.holders.value = byDevice;
    this.#notify(null);
  }

  /** Forgets everything, because the caller changed. */
  clear(): void {
    this.nodes.clear();
    this.jobs.clear();
    batch(() => {
      this.nodesVersion.value += 1;
      this.jobsVersion.value += 1;
      this.nodesKnown.value = false;
      this.jobsKnown.value = false;
      this.sample.value = null;
      this.holders.value = new Map();
    });
    this.#notify(null);
  }

  /** Adds a listener for changes of nodes. Call the returned function to remove it. */
  onNodes(listener: NodeListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #notify(changed: readonly string[] | null): void {
    for (const listener of this.#listeners) listener(changed);
  }
}

export function keyOf(job: JobName): string {
  return `${job.namespace}/${job.name}`;
}

function absent(known: ReadonlyMap<string, unknown>, present: readonly string[]): string[] {
  const kept = new Set(present);
  return [...known.keys()].filter((name) => !kept.has(name));
}

export const cluster = new Cluster();
