// SPDX-License-Identifier: Apache-2.0
/** Written by `make generate` from the schemas of the REST API and of GPUJob. */

export const PHASES = [
  "Pending",
  "Admitted",
  "Running",
  "Succeeded",
  "Failed",
  "Suspended",
] as const;

export const GROUPS = ["namespace", "job", "cohort", "model"] as const;

export const POLICIES = [
  "best-fit",
  "bid-price",
  "dot-product",
  "fgd",
  "first-fit",
  "gpu-clustering",
  "gpu-packing",
  "pace",
  "random",
  "worst-fit",
  "default",
] as const;

export const LEAST = {
  workers: 1,
  gpus: 1,
  percent: 1,
  priority: -1_000_000_000,
};

export const MOST = {
  workers: 1_024,
  gpus: 64,
  percent: 99,
  priority: 1_000_000_000,
};
