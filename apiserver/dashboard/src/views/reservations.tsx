// SPDX-License-Identifier: Apache-2.0
/** Time-window reservations with their current or next window. */

import type { Reservation } from "../contract.ts";
import { amount, byName, whole } from "../format.ts";
import { useCall } from "../parts/call.ts";
import { Loading, Missing } from "../parts/notice.tsx";
import { scope } from "../parts/scope.tsx";
import { type Column, Table } from "../parts/table.tsx";

const LIMIT = 500;

interface Reservations {
  readonly reservations: readonly Reservation[];
  readonly total: number;
}

const COLUMNS: readonly Column<Reservation>[] = [
  {
    key: "name",
    title: "Reservation",
    width: "minmax(100px, 2fr)",
    order: (a, b) => byName(keyOf(a), keyOf(b)),
    cell: keyOf,
  },
  {
    key: "model",
    title: "Model",
    width: "minmax(60px, 1fr)",
    wideOnly: true,
    cell: (r) => r.model,
  },
  { key: "phase", title: "Phase", width: "80px", cell: (r) => r.phase },
  {
    key: "window_start",
    title: "Window",
    width: "minmax(120px, 2fr)",
    order: (a, b) => byName(a.window_start, b.window_start),
    cell: (r) => (r.window_start ? `${local(r.window_start)} to ${local(r.window_end)}` : "none"),
  },
  numeric("gpus", "GPUs"),
  numeric("used", "Used"),
  numeric("held", "Held"),
  numeric("missing", "Missing"),
];

/** A section below the quotas; nothing where there are no reservations. */
export function ReservationsSection() {
  const query = { namespace: scope.value, limit: LIMIT };
  const now = useCall<Reservations>("reservations", query, 10);
  if (now.problem && !now.value) {
    return <Missing what="Reservations" problem={now.problem} again={now.again} />;
  }
  if (!now.value) return <Loading what="Reservations" />;
  const { reservations, total } = now.value;
  if (reservations.length === 0) return null;
  return (
    <>
      <h2>Time-window reservations</h2>
      {reservations
        .filter((each) => each.problem)
        .map((each) => (
          <p class="message" key={keyOf(each)}>
            <b>{keyOf(each)}</b>: {each.problem}
          </p>
        ))}
      <div class="bounded-table">
        <Table
          label="Time-window reservations"
          columns={COLUMNS}
          rows={reservations}
          keyOf={keyOf}
          sort="window_start"
        />
      </div>
      {total > reservations.length && (
        <p class="muted">
          {whole(reservations.length)} of {whole(total)}; name a namespace to see others.
        </p>
      )}
    </>
  );
}

function keyOf(reservation: Reservation): string {
  return `${reservation.namespace}/${reservation.name}`;
}

function local(time: string): string {
  return new Date(time).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
}

function numeric(key: "gpus" | "used" | "held" | "missing", title: string): Column<Reservation> {
  return {
    key,
    title,
    width: "66px",
    numeric: true,
    order: (a, b) => amount(a[key]) - amount(b[key]),
    cell: (reservation) => reservation[key] || "0",
  };
}
