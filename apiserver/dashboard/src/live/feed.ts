// SPDX-License-Identifier: Apache-2.0
/**
 * Keeps the cluster's state up to date with the server's events. If the server sends no events, it
 * polls.
 *
 * Each connection begins with the complete state (`full=1`), so changes while there was no connection
 * are not missed. After a failure comes a pause, which doubles. A connection without data for
 * SILENT_SECONDS is closed, because a proxy can keep a connection open whose other end is gone.
 */

import { computed, signal } from "@preact/signals";
import { get, type Problem, pathOf, send } from "../api.ts";
import type { Job, Monitoring, Node, Sample } from "../contract.ts";
import { allPages, type Page } from "../paging.ts";
import { refusal, token } from "../session.ts";
import { pauseSeconds } from "./backoff.ts";
import { type Cluster, cluster, type JobChanges, type NodeChanges } from "./cluster.ts";
import { EventReader, type ServerEvent } from "./events.ts";

export const SILENT_SECONDS = 45;
const LASTING_MS = 10_000;
const POLL_SECONDS = 10;
const POLLING_SECONDS = 60;

/** Status of calls that need a cluster, from the server of a single machine. */
const NO_CLUSTER = 501;

/** Statuses without events: a namespace must be named, there is no such call, or too many streams. */
const WITHOUT_EVENTS: ReadonlySet<number> = new Set([400, 404, 429, NO_CLUSTER]);

const PAGE = 5000;

export type Link =
  | { readonly state: "connecting" }
  | { readonly state: "live" }
  | { readonly state: "polling"; readonly why: string }
  | { readonly state: "waiting"; readonly until: number; readonly why: string }
  | { readonly state: "off" };

export const link = signal<Link>({ state: "off" });

/** Time of the server's last data, in milliseconds since 1970. 0: none yet. */
export const lastDataAt = signal(0);

/** Problems by list: nodes or jobs that cannot be shown. */
export const problems = signal<Readonly<Record<string, Problem>>>({});

/** Whether the server is that of a single machine. */
export const singleMachine = computed(() => problems.value["jobs"]?.status === NO_CLUSTER);

type End = { readonly why: string; readonly went: boolean; readonly status: number };

/** Follows the cluster's state until `stop` is aborted. */
export async function follow(namespace: string, stop: AbortSignal): Promise<void> {
  link.value = { state: "connecting" };
  problems.value = {};
  for (let failures = 0; !stop.aborted; ) {
    const end = await connection(namespace, stop);
    if (stop.aborted || end.status === 401) break;
    if (WITHOUT_EVENTS.has(end.status)) {
      await poll(namespace, end.why, stop);
      continue;
    }
    failures = end.went ? 0 : failures + 1;
    const seconds = pauseSeconds(failures, Math.random());
    link.value = { state: "waiting", until: Date.now() + seconds * 1000, why: end.why };
    await pause(seconds, stop);
  }
  if (!stop.aborted) link.value = { state: "off" };
}

async function connection(namespace: string, stop: AbortSignal): Promise<End> {
  const silence = new AbortController();
  const began = Date.now();
  const signal = AbortSignal.any([stop, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENT_SECONDS * 1000);
  const noteData = () => {
    lastDataAt.value = Date.now();
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENT_SECONDS * 1000);
  };
  try {
    const answer = await send(pathOf("events", { namespace, full: 1 }), { signal });
    if (!answer.ok) {
      return { why: answer.problem.detail, went: false, status: answer.problem.status };
    }
    noteData();
    const message = await read(answer.value, noteData);
    return {
      why: message || "The server ended the connection.",
      went: hasLasted(began),
      status: 0,
    };
  } catch {
    const why = silence.signal.aborted
      ? "The server sent nothing for a while."
      : "The connection was lost.";
    return { why, went: hasLasted(began), status: 0 };
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** Whether a connection lasted. A server that ends each one at once is not called every second. */
function hasLasted(began: number): boolean {
  return Date.now() - began > LASTING_MS;
}

/** Reads events until the end of the stream. Returns the server's message about the end. */
async function read(response: Response, noteData: () => void): Promise<string> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  const complete = new Set(["nodes", "jobs"]);
  for (;;) {
    const piece = await reader?.read();
    if (!piece || piece.done) return "";
    noteData();
    for (const event of events.read(piece.value)) {
      if (event.kind === "bye") return goodbye(event.data);
      applyEvent(cluster, event, complete.delete(event.kind));
      if (event.kind === "jobs" && complete.has("nodes")) void checkNodes();
      if (link.value.state !== "live") link.value = { state: "live" };
    }
  }
}

function goodbye(data: string): string {
  try {
    return (JSON.parse(data) as { message?: string }).message ?? "";
  } catch {
    return "";
  }
}

/** Jobs come last. Without nodes before them, the caller may not see nodes: finds out why. */
async function checkNodes(): Promise<void> {
  const answer = await get<unknown>("nodes", { limit: 1 });
  if (!answer.ok) problems.value = { nodes: answer.problem };
}

export function applyEvent(into: Cluster, event: ServerEvent, first: boolean): void {
  const data: unknown = JSON.parse(event.data);
  if (event.kind === "nodes") into.updateNodes(data as NodeChanges, first);
  if (event.kind === "jobs") into.updateJobs(data as JobChanges, first);
  if (event.kind === "cluster") {
    const { sample, utilization } = data as ClusterEvent;
    into.sample.value = sample && { ...sample, ...utilization };
  }
}

/** The utilization is current; all other figures are from the last sample. */
interface ClusterEvent {
  readonly utilization: Pick<Sample, "gpu_utilization" | "gpu_memory_usage">;
  readonly sample: Sample | null;
}

/** Polls lists for a while. Then events are requested again. */
async function poll(namespace: string, why: string, stop: AbortSignal): Promise<void> {
  const until = Date.now() + POLLING_SECONDS * 1000;
  while (!stop.aborted && token.value !== "" && refusal.value === "" && Date.now() < until) {
    const [nodes, jobs, figures] = await Promise.all([
      pages<Node>("nodes", {}, stop),
      pages<Job>("jobs", { namespace }, stop),
      get<Monitoring>("monitoring", {}, stop),
    ]);
    if (stop.aborted) return;
    const found: Record<string, Problem> = {};
    if ("status" in nodes) found["nodes"] = nodes;
    else cluster.updateNodes({ changed: nodes, removed: [] }, true);
    if ("status" in jobs) found["jobs"] = jobs;
    else cluster.updateJobs({ changed: jobs, removed: [] }, true);
    if (figures.ok) cluster.sample.value = figures.value.current;
    problems.value = found;
    const reached = Object.values(found).every((each) => each.status !== 0);
    if (reached) lastDataAt.value = Date.now();
    link.value = reached
      ? { state: "polling", why }
      : { state: "waiting", until: Date.now() + POLL_SECONDS * 1000, why: "No answer." };
    await pause(POLL_SECONDS, stop);
  }
}

/** Returns all pages of a list. */
export async function pages<T>(
  call: "nodes" | "jobs" | "holders",
  query: Readonly<Record<string, string>>,
  stop: AbortSignal,
): Promise<readonly T[] | Problem> {
  const found = await allPages<Page & Readonly<Record<string, unknown>>>((after) =>
    get(call, { ...query, limit: PAGE, after }, stop),
  );
  return found.ok ? found.value.flatMap((page) => page[call] as readonly T[]) : found.problem;
}

export function pause(seconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    stop.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
