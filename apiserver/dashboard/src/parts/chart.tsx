// SPDX-License-Identifier: Apache-2.0
/** A chart over time. Lines differ in dash and name as well as in colour, and values are in text, too. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { clock } from "../format.ts";
import { ticks, timeTicks } from "./scale.ts";

export interface Series {
  readonly name: string;
  readonly values: readonly (number | null)[];
  /** Whether the series is a limit, such as a nominal quota. */
  readonly bound?: boolean;
}

interface Props {
  readonly title: string;
  readonly note?: string;
  readonly times: readonly number[];
  readonly series: readonly Series[];
  /** Formats a value. */
  readonly format: (value: number | null | undefined) => string;
  readonly max?: number;
  readonly height?: number;
}

const LEFT = 44;
const BOTTOM = 22;
const TOP = 6;
const RIGHT = 8;

export function Chart({ title, note, times, series, format, max, height = 180 }: Props) {
  const figure = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [cursor, setCursor] = useState<number | null>(null);
  useLayoutEffect(() => {
    const element = figure.current;
    if (!element) return;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const known = series.flatMap((each) => each.values.filter((value) => value !== null));
  const marks = ticks(max ?? Math.max(...known, 0));
  const top = marks.at(-1) ?? 1;
  const [from, to] = [times[0] ?? 0, times.at(-1) ?? 1];
  const x = (time: number) => LEFT + ((time - from) / (to - from || 1)) * (width - LEFT - RIGHT);
  const y = (value: number) => TOP + (1 - Math.min(value / top, 1)) * (height - TOP - BOTTOM);
  const at = Math.min(cursor ?? times.length - 1, times.length - 1);
  const move = (event: PointerEvent & { currentTarget: Element }) => {
    const box = event.currentTarget.getBoundingClientRect();
    const time = from + ((event.clientX - box.left - LEFT) / (width - LEFT - RIGHT)) * (to - from);
    setCursor(nearest(times, time));
  };
  const press = (event: KeyboardEvent) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -times.length, End: times.length }[
      event.key
    ];
    if (steps === undefined) return;
    event.preventDefault();
    setCursor(Math.min(Math.max(at + steps, 0), times.length - 1));
  };
  const moment = times[at];
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        {note && <span class="muted"> {note}</span>}
      </figcaption>
      <p class="chart-readout">
        <span class="muted">{moment === undefined ? "" : clock(moment, to - from)}</span>
        {series.map((each, line) => (
          <span key={each.name} class="chart-key">
            <svg width="18" height="8" aria-hidden="true">
              <line
                x1="0"
                x2="18"
                y1="4"
                y2="4"
                class={`line line-${line % 4} ${each.bound ? "bound" : ""}`}
              />
            </svg>
            {each.name} <b>{format(each.values[at])}</b>
          </span>
        ))}
      </p>
      <div
        ref={figure}
        class="chart-area"
        role="slider"
        aria-label={`${title}: time shown`}
        aria-valuemin={0}
        aria-valuemax={Math.max(times.length - 1, 0)}
        aria-valuenow={Math.max(at, 0)}
        aria-valuetext={`${moment === undefined ? "no data yet" : clock(moment, to - from)}: ${series.map((each) => `${each.name} ${format(each.values[at])}`).join(", ")}`}
        tabIndex={0}
        style={{ height: `${height}px` }}
        onPointerMove={move}
        onPointerLeave={() => setCursor(null)}
        onKeyDown={press}
        onBlur={() => setCursor(null)}
      >
        {width > 0 && (
          <svg width={width} height={height} aria-hidden="true">
            {marks.map((value) => (
              <g key={value}>
                <line x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} class="grid" />
                <text x={LEFT - 6} y={y(value) + 4} text-anchor="end" class="axis">
                  {value.toLocaleString("en")}
                </text>
              </g>
            ))}
            {timeTicks(from, to, Math.max(Math.floor(width / 90), 2)).map((time) => (
              <text key={time} x={x(time)} y={height - 6} text-anchor="middle" class="axis">
                {clock(time, to - from)}
              </text>
            ))}
            {series.map((each, line) => (
              <path
                key={each.name}
                d={path(times, each.values, x, y)}
                class={`line line-${line % 4} ${each.bound ? "bound" : ""}`}
              />
            ))}
            {moment !== undefined && cursor !== null && (
              <line x1={x(moment)} x2={x(moment)} y1={TOP} y2={height - BOTTOM} class="cursor" />
            )}
          </svg>
        )}
      </div>
    </figure>
  );
}

/** Path of a line with gaps where values are unknown. */
function path(
  times: readonly number[],
  values: readonly (number | null)[],
  x: (time: number) => number,
  y: (value: number) => number,
): string {
  let drawn = "";
  let pen = "M";
  for (const [at, time] of times.entries()) {
    const value = values[at];
    if (value === null || value === undefined) {
      pen = "M";
      continue;
    }
    drawn += `${pen}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  }
  return drawn;
}

function nearest(times: readonly number[], wanted: number): number {
  let best = 0;
  for (const [at, time] of times.entries()) {
    if (Math.abs(time - wanted) < Math.abs((times[best] ?? 0) - wanted)) best = at;
  }
  return best;
}
