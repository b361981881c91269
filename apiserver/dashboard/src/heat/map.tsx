// SPDX-License-Identifier: Apache-2.0
/** The heat map: a square for each GPU, for mouse, touch, keyboard and screen reader. */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Node } from "../contract.ts";
import { cluster } from "../live/cluster.ts";
import { theme } from "../theme.ts";
import type { Look } from "./draw.ts";
import { cellBox, fitting, layout, nextPlace, type Place, placeAt, type Step } from "./layout.ts";
import type { Measure, Ranks } from "./measures.ts";
import { Painter } from "./painter.ts";

const STEPS: Readonly<Record<string, Step>> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
};

interface Props {
  /** Sorted by model, then by name. */
  readonly nodes: Node[];
  readonly measure: Measure;
  readonly ranks: Ranks;
  readonly wanted: (node: Node) => boolean;
  /** Size of a square. 0: the largest size with which all squares are visible. */
  readonly cell: number;
  readonly onFit: (cell: number) => void;
  readonly place: Place | null;
  readonly onPlace: (place: Place | null) => void;
  readonly onOpen: (place: Place) => void;
  readonly onZoom: (steps: number) => void;
}

export function HeatMap(props: Props) {
  const { nodes, place, onPlace, onOpen } = props;
  const scroll = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const painter = useRef<Painter | null>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });

  const shapes = useMemo(
    () =>
      nodes.map((node) => ({
        name: node.node_name,
        group: node.gpu_type,
        devices: node.devices.length,
      })),
    [nodes],
  );
  const fit = useMemo(
    () => (size.width ? fitting(shapes, size.width, size.height) : 0),
    [shapes, size],
  );
  const cell = props.cell || fit;
  const shown = useMemo(() => layout(shapes, size.width, cell || 3), [shapes, size.width, cell]);

  useLayoutEffect(() => {
    const element = scroll.current;
    if (!element) return;
    const measured = () => {
      const { clientWidth: width, clientHeight: height } = element;
      setSize((known) =>
        known.width === width && known.height === height ? known : { width, height },
      );
    };
    measured();
    const observer = new ResizeObserver(measured);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => props.onFit(fit), [fit]);

  useEffect(() => {
    if (!canvas.current) return;
    const made = new Painter(canvas.current);
    painter.current = made;
    const leave = cluster.onNodes((changed) => {
      if (changed) made.change(changed.flatMap((name) => cluster.nodes.get(name) ?? []));
    });
    return () => {
      leave();
      made.stop();
    };
  }, []);

  useEffect(
    () =>
      effect(() => {
        if (size.width === 0) return;
        painter.current?.show(nodes, shown, lookOf(props));
        painter.current?.look(scroll.current?.scrollTop ?? 0, size.height);
      }),
    [nodes, shown, size, props.measure, props.ranks, props.wanted],
  );

  // Ctrl and wheel zoom the page unless a listener that is not passive prevents it.
  useEffect(() => {
    const element = scroll.current;
    const zoom = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      props.onZoom(event.deltaY < 0 ? 1 : -1);
    };
    element?.addEventListener("wheel", zoom, { passive: false });
    return () => element?.removeEventListener("wheel", zoom);
  }, [props.onZoom]);

  const at = (event: MouseEvent): Place | null => {
    const box = scroll.current?.getBoundingClientRect();
    if (!box || !scroll.current) return null;
    const y = event.clientY - box.top + scroll.current.scrollTop;
    return placeAt(shown, shapes, event.clientX - box.left, y);
  };
  const go = (next: Place) => {
    onPlace(next);
    const box = cellBox(shown, next);
    const element = scroll.current;
    if (!element) return;
    if (box.y < element.scrollTop + 8) element.scrollTop = box.y - 40;
    const below = box.y + box.height + 24 - element.clientHeight;
    if (below > element.scrollTop) element.scrollTop = below;
  };
  const press = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    const from = place ?? { node: 0, device: 0 };
    if (step) go(place ? nextPlace(shown, shapes, from, step) : from);
    else if (event.key === "Home") go({ node: 0, device: 0 });
    else if (event.key === "End") go({ node: nodes.length - 1, device: 0 });
    else if (event.key === "Enter" || event.key === " ") onOpen(from);
    else if (event.key === "+" || event.key === "=") props.onZoom(1);
    else if (event.key === "-") props.onZoom(-1);
    else return;
    event.preventDefault();
  };

  const ring = place && place.node < nodes.length ? cellBox(shown, place) : null;
  return (
    <div
      class="heat"
      ref={scroll}
      role="application"
      aria-label="Map of all GPUs"
      aria-describedby="heat-help heat-readout"
      tabIndex={0}
      onKeyDown={press}
      onFocus={() => place === null && nodes.length > 0 && onPlace({ node: 0, device: 0 })}
      onPointerMove={(event) => event.pointerType === "mouse" && onPlace(at(event))}
      onClick={(event) => {
        const clicked = at(event);
        if (clicked) onOpen(clicked);
      }}
      onScroll={(event) => painter.current?.look(event.currentTarget.scrollTop, size.height)}
    >
      <div class="heat-all" style={{ height: `${Math.max(shown.height, size.height)}px` }}>
        <canvas ref={canvas} />
        {ring && (
          <div
            class="heat-ring"
            style={{
              transform: `translate(${ring.x - 2}px, ${ring.y - 2}px)`,
              width: `${ring.width + 4}px`,
              height: `${ring.height + 4}px`,
            }}
          />
        )}
      </div>
    </div>
  );
}

function lookOf(props: Props): Look {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => resolved(style.getPropertyValue(name));
  return {
    theme: theme.value,
    measure: props.measure,
    holders: cluster.holders.value,
    ranks: props.ranks,
    surface: colour("--surface"),
    text: colour("--text"),
    muted: colour("--muted"),
    font: style.fontFamily,
    wanted: props.wanted,
  };
}

/** The colour of `light-dark(a, b)` that applies, because a canvas does not know the page's scheme. */
function resolved(value: string): string {
  const both = /^light-dark\(\s*([^,]+),\s*([^)]+)\)$/.exec(value.trim());
  if (!both) return value.trim();
  return (theme.value === "dark" ? both[2] : both[1])?.trim() ?? "";
}
