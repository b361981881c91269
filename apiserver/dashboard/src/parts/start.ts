// SPDX-License-Identifier: Apache-2.0
/** When a job that waits starts, by the API's answer: never, not now and unknown are different. */

import type { Start } from "../contract.ts";

export const NEVER = "It can never run with the cluster and the quotas as they are.";

/** @param fitsNow whether it has room now; null: it is not in the queue. */
export function fit(start: Start | null | undefined, fitsNow: boolean | null): string {
  if (start?.kind === "Never") return NEVER;
  if (fitsNow === null) return "";
  return fitsNow ? "It would fit now." : "It does not fit now.";
}
