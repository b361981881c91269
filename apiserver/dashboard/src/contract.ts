// SPDX-License-Identifier: Apache-2.0
/** Answers of gpupack-api, as far as the page shows them. One GB is 10^9 bytes. */

export type Health = "Healthy" | "Degraded" | "Cordoned" | "Failed" | "Maintenance";

/** A GPU or MIG slice. null: unknown. */
export interface Device {
  readonly index: number;
  readonly uuid: string;
  readonly gpu_type: string;
  readonly memory_gb: number;
  /** Part that new work may use. 0 if the GPU's health allows no new work. */
  readonly free_percent: number;
  readonly free_memory_gb: number;
  readonly given_percent: number;
  readonly health: string;
  readonly mig_profile?: string;
  readonly simulated: boolean;
  readonly temperature_celsius?: number | null;
  readonly power_watts?: number | null;
  readonly busy_percent?: number | null;
}

export interface Node {
  readonly node_name: string;
  readonly gpu_type: string;
  readonly total_gpus: number;
  readonly available_gpus: number;
  readonly memory_per_gpu: number;
  readonly utilization: number;
  readonly ready: boolean;
  readonly devices: readonly Device[];
}

export interface Job {
  readonly namespace: string;
  readonly name: string;
  readonly phase: string;
  readonly reason: string;
  readonly message: string;
  readonly workers: number;
  /** Number of whole GPUs, or shares and MIG slices such as 2x40%. */
  readonly gpus: number | string;
  readonly nodes: string;
  readonly attempt: number;
  readonly priority: number;
  readonly preemptions: number;
  readonly restarts: number;
  readonly workload: string;
  readonly result: string;
  readonly created: string | null;
  readonly started: string | null;
}

export interface Attempt {
  readonly number: number;
  readonly started: string | null;
  readonly finished: string | null;
  readonly outcome: string | null;
  readonly reason: string;
  readonly message: string;
  readonly nodes: string;
}

export interface WorkerDevice {
  readonly index: number;
  readonly uuid: string;
  readonly percent: number;
  readonly memory_mib: number;
}

export interface Worker {
  readonly worker: number;
  readonly node: string;
  readonly devices: readonly WorkerDevice[];
  /** Several workers may share a pod. Empty: there is no pod, or the caller may not list pods. */
  readonly pod?: string;
}

export interface JobDetail {
  readonly job: Job;
  readonly attempts: readonly Attempt[];
  readonly workers?: readonly Worker[];
}

/** A job or a standalone pod. */
export interface JobName {
  readonly namespace: string;
  readonly name: string;
  readonly kind?: "GPUJob" | "Pod";
}

/** Start estimate of a pending job or pod. */
export interface Start {
  readonly kind: "Now" | "At" | "WhenReleased" | "Never" | "Unknown";
}

export interface Explanation {
  readonly phase: string;
  readonly reason: string;
  readonly message: string;
  readonly position: number | null;
  readonly waiting: number;
  readonly ahead: readonly JobName[];
  readonly ahead_hidden: number;
  readonly estimated_wait_seconds: number | null;
  readonly fits_now: boolean | null;
  readonly would_help: readonly string[];
  readonly start: Start | null;
}

export interface WhatIf {
  readonly outcome: "Starts" | "Waits" | "Never";
  readonly reason: string;
  readonly message: string;
  readonly workers: readonly Worker[];
  readonly position: number | null;
  readonly waiting: number;
  readonly estimated_wait_seconds: number | null;
  readonly preempts: readonly JobName[];
  readonly preempts_hidden: number;
  readonly would_help: readonly string[];
}

/** State of the cluster at one time. Percentages are of allocated GPUs and memory. */
export interface Sample {
  readonly timestamp: string;
  readonly gpus: number;
  readonly available_gpus: number;
  readonly gpu_utilization: number;
  readonly gpu_memory_usage: number;
  readonly running_jobs: number;
  readonly waiting_jobs: number;
  /** Percentage of free GPUs outside fully free nodes. */
  readonly fragmentation?: number | null;
}

export interface Monitoring {
  readonly current: Sample | null;
  readonly history: readonly Sample[];
  readonly interval_seconds: number;
}

export interface Quota {
  readonly namespace: string;
  readonly cohort: string;
  readonly nominal: string;
  readonly used: string;
  readonly borrowed: string;
  readonly lent: string;
  readonly running: number;
  readonly waiting: number;
  readonly problem: string;
}

/** Amounts in GPUs, one for each timestamp. null: unknown. */
export interface QuotaSeries {
  readonly namespace: string;
  readonly cohort: string;
  readonly nominal: readonly (number | null)[];
  readonly used: readonly (number | null)[];
  readonly borrowed: readonly (number | null)[];
}

export interface QuotaHistory {
  readonly interval_seconds: number;
  readonly timestamps: readonly string[];
  readonly quotas: readonly QuotaSeries[];
  /** Number of quotas that the caller may see, with figures or without. */
  readonly total: number;
  readonly next?: string;
}

export interface Holder {
  readonly namespace: string;
  readonly pod: string;
  readonly job: string;
  readonly worker: number | null;
  readonly node: string;
  readonly uuid: string;
  readonly index: number | null;
  readonly percent: number;
  readonly memory_mib: number;
  readonly isolation: string;
}

export interface CostRow {
  readonly namespace: string;
  readonly cohort: string;
  readonly job: string;
  readonly model: string;
  readonly allocated_gpu_hours: number;
  readonly used_gpu_hours: number | null;
  readonly idle_gpu_hours: number | null;
  readonly unknown_gpu_hours: number;
  readonly energy_kwh: number | null;
  /** null: a model in this row has no price. */
  readonly cost: number | null;
}

/** GPUs without a holder. */
export interface UnheldRow {
  readonly model: string;
  readonly unheld_gpu_hours: number;
  readonly unusable_gpu_hours: number;
  readonly energy_kwh: number | null;
  readonly cost: number | null;
}

export interface Cost {
  readonly currency: string;
  readonly since: string;
  readonly until: string;
  readonly rows: readonly CostRow[];
  readonly total: CostRow;
  /** null: the caller may not see these rows. */
  readonly unheld: readonly UnheldRow[] | null;
  readonly next?: string;
}

/** A pending job or standalone pod. `position` is its position in the cluster's whole queue. */
export interface Waiting extends Job {
  readonly kind: "GPUJob" | "Pod";
  readonly position: number | null;
}

/** The queue. `total` is the number of entries on all pages. */
export interface Queue {
  readonly waiting: readonly Waiting[];
  readonly total: number;
  readonly may_list: boolean;
  readonly next?: string;
}
