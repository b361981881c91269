// SPDX-License-Identifier: Apache-2.0
/** Start estimate of a pending job in words. Never, not now and unknown differ. */

import type { Start } from "../contract.ts";

export const NEVER = "It can never run with the cluster and the quotas as they are.";

/** @param fitsNow whether the job fits now. null: it is not in the queue. */
export function fit(
  start: Pick<Start, "kind"> | null | undefined,
  fitsNow: boolean | null,
): string {
  if (start?.kind === "Never") return NEVER;
  if (fitsNow === null) return "";
  return fitsNow ? "It would fit now." : "It does not fit now.";
}
