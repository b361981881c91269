// SPDX-License-Identifier: Apache-2.0
/** A table of any length. Only visible rows are in the page; spacers replace the others. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

export interface Column<T> {
  readonly key: string;
  readonly title: string;
  /** Track size of the CSS grid. */
  readonly width: string;
  readonly cell: (row: T) => ComponentChildren;
  readonly order?: (a: T, b: T) => number;
  readonly numeric?: boolean;
  /** Whether the column is hidden on narrow screens. */
  readonly wideOnly?: boolean;
}

interface Props<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  /** Key of the column by which rows are sorted at first. Empty: rows keep their order. */
  readonly sort?: string;
  readonly tall?: boolean;
}

const ROW = 34;
const TALL_ROW = 56;
const NARROW_TALL_ROW = 94;
const NARROW = "(max-width: 640px)";
const BEYOND = 6;

export function Table<T>({ label, columns, rows, keyOf, sort = "", tall = false }: Props<T>) {
  const narrow = useMedia(NARROW);
  const height = tall ? (narrow ? NARROW_TALL_ROW : TALL_ROW) : ROW;
  const shown = columns.filter((column) => !narrow || !column.wideOnly);
  const [order, setOrder] = useState({ key: sort, down: false });
  const ordered = useMemo(() => {
    const by = columns.find((column) => column.key === order.key)?.order;
    if (!by) return rows;
    return [...rows].sort((a, b) => (order.down ? by(b, a) : by(a, b)));
  }, [rows, order]);
  const body = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  useLayoutEffect(() => {
    const element = body.current;
    if (!element) return;
    const look = () => setSeen({ top: element.scrollTop, height: element.clientHeight });
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(Math.floor(seen.top / height) - BEYOND, 0);
  const end = Math.min(Math.ceil((seen.top + seen.height) / height) + BEYOND, ordered.length);
  const tracks = { gridTemplateColumns: shown.map((column) => column.width).join(" ") };
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={ordered.length + 1}>
      <div
        class="table-body"
        ref={body}
        tabIndex={0}
        role="rowgroup"
        aria-label={`${label}, rows`}
        onScroll={(event) =>
          setSeen({
            top: event.currentTarget.scrollTop,
            height: event.currentTarget.clientHeight,
          })
        }
      >
        <div class="table-row table-head" role="row" aria-rowindex={1} style={tracks}>
          {shown.map((column) => (
            <div
              key={column.key}
              role="columnheader"
              class={column.numeric ? "numeric" : ""}
              aria-sort={
                order.key !== column.key ? "none" : order.down ? "descending" : "ascending"
              }
            >
              {column.order ? (
                <button
                  type="button"
                  onClick={() =>
                    setOrder((known) => ({
                      key: column.key,
                      down: known.key === column.key && !known.down,
                    }))
                  }
                >
                  {column.title}
                  <span aria-hidden="true" class="table-order">
                    {order.key === column.key ? (order.down ? "▾" : "▴") : ""}
                  </span>
                </button>
              ) : (
                column.title
              )}
            </div>
          ))}
        </div>
        <div role="presentation" style={{ height: `${first * height}px` }} />
        {ordered.slice(first, end).map((row, at) => (
          <div
            class="table-row"
            key={keyOf(row)}
            role="row"
            aria-rowindex={first + at + 2}
            style={{ ...tracks, height: `${height}px` }}
          >
            {shown.map((column) => (
              <div key={column.key} role="cell" class={column.numeric ? "numeric" : ""}>
                {column.cell(row)}
              </div>
            ))}
          </div>
        ))}
        <div role="presentation" style={{ height: `${(ordered.length - end) * height}px` }} />
      </div>
    </div>
  );
}

export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const changed = () => setMatches(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [query]);
  return matches;
}
