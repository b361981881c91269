// SPDX-License-Identifier: Apache-2.0
/** Periods of a job: waiting times and attempts. */

import type { Attempt, Job } from "../contract.ts";

export interface Span {
  readonly title: string;
  readonly outcome: string;
  readonly why: string;
  readonly where: string;
  readonly from: number;
  readonly to: number;
  /** Whether the period has not ended. */
  readonly open: boolean;
}

/** Returns the attempts and the waiting times before them, in milliseconds since 1970. */
export function spans(job: Job, attempts: readonly Attempt[], now: number): readonly Span[] {
  const found: Span[] = [];
  let since = job.created === null ? Number.NaN : Date.parse(job.created);
  for (const attempt of attempts) {
    const from = attempt.started === null ? Number.NaN : Date.parse(attempt.started);
    if (Number.isNaN(from)) continue;
    if (from > since) found.push(waiting(since, from, false));
    const ended = attempt.finished === null ? Number.NaN : Date.parse(attempt.finished);
    const open = Number.isNaN(ended);
    found.push({
      title: `Attempt ${attempt.number}`,
      outcome: attempt.outcome ?? (open ? "Running" : ""),
      why: [attempt.reason, attempt.message].filter(Boolean).join(": "),
      where: attempt.nodes,
      from,
      to: open ? Math.max(now, from) : ended,
      open,
    });
    since = open ? Number.POSITIVE_INFINITY : ended;
  }
  const ended = job.phase === "Succeeded" || job.phase === "Failed";
  if (!ended && Number.isFinite(since)) found.push(waiting(since, Math.max(now, since), true));
  return found;
}

function waiting(from: number, to: number, open: boolean): Span {
  return { title: "Waited", outcome: "Pending", why: "", where: "", from, to, open };
}
