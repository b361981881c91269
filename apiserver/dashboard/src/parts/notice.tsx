// SPDX-License-Identifier: Apache-2.0
/** Notices where there is nothing to show. */

import type { ComponentChildren } from "preact";
import type { Problem } from "../api.ts";

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="notice">
      <p class="notice-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}

/** A failed call. @param what the call would have shown, such as "Cost". */
export function Missing({
  what,
  problem,
  again,
}: {
  what: string;
  problem: Problem;
  again?: () => void;
}) {
  return (
    <div class="notice notice-problem" role="status">
      <p class="notice-title">{title(what, problem.status)}</p>
      <p>{problem.detail}</p>
      {problem.fix && !problem.detail.includes(problem.fix) && <p>{problem.fix}</p>}
      {problem.status === 403 && (
        <p>
          An administrator of the cluster can grant this permission; the rest of the page works
          without it.
        </p>
      )}
      {again && problem.status !== 403 && problem.status !== 404 && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Placeholder in the size of the content. */
export function Loading({ rows = 6, what }: { rows?: number; what: string }) {
  return (
    <div class="loading" role="status">
      <span class="visually-hidden">Loading {what}</span>
      {Array.from({ length: rows }, (_, row) => (
        <div class="loading-row" key={row} />
      ))}
    </div>
  );
}

function title(what: string, status: number): string {
  if (status === 403) return `${what}: permission denied`;
  if (status === 404) return `${what}: this server does not have it`;
  if (status === 429) return `${what}: too many requests`;
  if (status === 503) return `${what}: the cluster's state is not known now`;
  return `${what}: no answer`;
}
