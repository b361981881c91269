// SPDX-License-Identifier: Apache-2.0
/** A job's phase or a GPU's health: a shape, a word and a colour. */

const SHAPES: Readonly<Record<string, string>> = {
  Admitted: "▷",
  Running: "▶",
  Succeeded: "✓",
  Failed: "✕",
  Pending: "◷",
  Suspended: "‖",
  Starts: "▶",
  Waits: "◷",
  Never: "✕",
  Healthy: "●",
  Degraded: "▲",
  Cordoned: "▬",
  Maintenance: "‖",
};

const TONES: Readonly<Record<string, string>> = {
  Admitted: "going",
  Running: "going",
  Succeeded: "good",
  Starts: "good",
  Healthy: "good",
  Failed: "bad",
  Never: "bad",
  Degraded: "warn",
  Cordoned: "warn",
  Waits: "wait",
  Pending: "wait",
};

export function Phase({ of }: { of: string }) {
  return (
    <span class={`phase tone-${toneOf(of)}`}>
      <span aria-hidden="true" class="phase-shape">
        {SHAPES[of] ?? "○"}
      </span>
      {of || "unknown"}
    </span>
  );
}

export function toneOf(word: string): string {
  return TONES[word] ?? "plain";
}
