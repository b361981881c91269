// SPDX-License-Identifier: Apache-2.0
/** A what-if question as the state of the form and as the body of the call. */

export interface Form {
  readonly namespace: string;
  readonly workers: number;
  readonly kind: "whole" | "share";
  readonly gpus: number;
  readonly percent: number;
  /** GiB of memory of one GPU. */
  readonly memory: number;
  readonly model: string;
  readonly priority: number;
  readonly interconnect: "any" | "nvlink";
  readonly oneWorkerPerNode: boolean;
  readonly policy: string;
  readonly without: string;
}

export const FIRST: Form = {
  namespace: "default",
  workers: 1,
  kind: "whole",
  gpus: 1,
  percent: 50,
  memory: 20,
  model: "",
  priority: 0,
  interconnect: "any",
  oneWorkerPerNode: false,
  policy: "",
  without: "",
};

export interface Question {
  readonly namespace: string;
  readonly job: Readonly<Record<string, unknown>>;
  readonly without_nodes: readonly string[];
  readonly policy: string;
}

export function question(form: Form): Question {
  const request =
    form.kind === "whole"
      ? { gpus: form.gpus }
      : { share: { percent: form.percent, memory: `${form.memory}Gi` } };
  return {
    namespace: form.namespace.trim(),
    job: {
      workers: form.workers,
      ...request,
      ...(form.model.trim() ? { gpuModels: words(form.model) } : {}),
      ...(form.priority === 0 ? {} : { priority: form.priority }),
      ...(form.interconnect === "nvlink" ? { interconnect: "nvlink" } : {}),
      ...(form.oneWorkerPerNode ? { spread: { oneWorkerPerNode: true } } : {}),
      workload: { name: "matmul" },
    },
    without_nodes: words(form.without),
    policy: form.policy,
  };
}

/** Splits text at commas and line breaks. Models contain spaces. */
function words(text: string): string[] {
  return text
    .split(/[,\n]/)
    .map((each) => each.trim())
    .filter(Boolean);
}
