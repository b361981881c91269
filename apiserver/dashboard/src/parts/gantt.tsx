// SPDX-License-Identifier: Apache-2.0
/** A job's history: a bar for each attempt and each waiting time, and the same as a list. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { clock, duration, moment } from "../format.ts";
import type { Span } from "./gantt.ts";
import { NodeNames } from "./names.tsx";
import { Phase, toneOf } from "./phase.tsx";
import { timeTicks } from "./scale.ts";

const ROW = 40;
const NAME_WIDTH = 190;
const AXIS = 22;

export function Gantt({ spans }: { spans: readonly Span[] }) {
  const area = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const from = Math.min(...spans.map((each) => each.from));
  const to = Math.max(...spans.map((each) => each.to), from + 1000);
  const x = (time: number) => ((time - from) / (to - from)) * Math.max(width - 2, 1);
  const bottom = spans.length * ROW;
  return (
    <div class="gantt">
      <div ref={area} class="gantt-area" style={{ height: `${bottom + AXIS}px` }}>
        {width > 0 && (
          <svg width={width} height={bottom + AXIS} aria-hidden="true">
            {timeTicks(from, to, Math.max(Math.floor(width / 90), 2)).map((time) => (
              <g key={time}>
                <line x1={x(time)} x2={x(time)} y1={0} y2={bottom} class="grid" />
                <text
                  x={Math.min(Math.max(x(time), 16), width - 18)}
                  y={bottom + 16}
                  text-anchor="middle"
                  class="axis"
                >
                  {to - from < 180_000 ? moment(time).split(" ").at(-1) : clock(time)}
                </text>
              </g>
            ))}
            {spans.map((span, row) => {
              const left = x(span.from);
              const long = Math.max(x(span.to) - left, 3);
              const name = `${span.title} · ${duration((span.to - span.from) / 1000)}`;
              return (
                <g key={`${span.title} ${span.from}`}>
                  <text
                    x={Math.max(Math.min(left, width - NAME_WIDTH), 0)}
                    y={row * ROW + 14}
                    class="bar-name"
                  >
                    {name}
                  </text>
                  <rect
                    x={left}
                    y={row * ROW + 20}
                    width={long}
                    height={14}
                    class={`bar bar-${toneOf(span.outcome)} ${span.title === "Waited" ? "bar-thin" : ""}`}
                  />
                </g>
              );
            })}
          </svg>
        )}
      </div>
      <ol class="timeline">
        {spans.map((span) => (
          <li key={`${span.title} ${span.from}`}>
            <time dateTime={new Date(span.from).toISOString()}>{moment(span.from)}</time>
            <div>
              <b>{span.title}</b> {span.title !== "Waited" && <Phase of={span.outcome} />}{" "}
              <span class="muted">
                {span.open ? "for" : "took"} {duration((span.to - span.from) / 1000)}
                {span.where && (
                  <>
                    {" "}
                    on <NodeNames of={span.where} />
                  </>
                )}
              </span>
              {span.why && <p>{span.why}</p>}
            </div>
          </li>
        ))}
      </ol>
    </div>
  );
}
