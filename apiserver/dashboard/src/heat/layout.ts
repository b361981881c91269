// SPDX-License-Identifier: Apache-2.0
/**
 * Positions of nodes and GPUs in the heat map, in CSS pixels.
 *
 * Nodes of one kind are in a group whose tiles have the same size. So a division gives the tile at a
 * point, and the arrow keys can follow rows and columns.
 */

export interface NodeShape {
  readonly name: string;
  readonly group: string;
  readonly devices: number;
}

export interface Group {
  readonly name: string;
  /** Index of the group's first node, and number of nodes. */
  readonly first: number;
  readonly count: number;
  /** Tiles in a row. */
  readonly across: number;
  /** Cells in a row of a tile. */
  readonly columns: number;
  readonly tileWidth: number;
  readonly tileHeight: number;
  /** Top of the first row of tiles. */
  readonly top: number;
  readonly headingTop: number;
}

export interface Layout {
  readonly cell: number;
  readonly gap: number;
  readonly labelHeight: number;
  readonly width: number;
  readonly height: number;
  readonly groups: readonly Group[];
}

export interface Place {
  /** Index of the node among all nodes. */
  readonly node: number;
  readonly device: number;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Sizes of a GPU's square. */
export const CELLS = [3, 4, 5, 6, 8, 10, 13, 16, 20, 26, 34, 44, 56] as const;
const LARGEST_FITTED = 44;
export const LABELLED_FROM = 16;
const HEADING = 28;
const LABEL = 18;
const PADDING = 12;

/** @param nodes sorted by group. */
export function layout(nodes: readonly NodeShape[], width: number, cell: number): Layout {
  const gap = cell < 6 ? 0.5 : cell < 12 ? 1 : 2;
  const labelHeight = cell >= LABELLED_FROM ? LABEL : 0;
  const groups: Group[] = [];
  let y = 0;
  for (let first = 0; first < nodes.length; ) {
    const name = nodes[first]?.group ?? "";
    let count = 0;
    let devices = 1;
    for (; nodes[first + count]?.group === name && first + count < nodes.length; count += 1) {
      devices = Math.max(devices, nodes[first + count]?.devices ?? 1);
    }
    const columns = columnsFor(devices);
    const rows = Math.ceil(devices / columns);
    const spacing = spacingFor(cell);
    const tileWidth = columns * (cell + gap) - gap + spacing;
    const tileHeight = rows * (cell + gap) - gap + spacing + labelHeight;
    const across = Math.max(Math.floor((width - PADDING) / tileWidth), 1);
    const top = y + HEADING;
    const place = { name, first, count, across, columns, tileWidth, tileHeight };
    groups.push({ ...place, top, headingTop: y });
    y = top + Math.ceil(count / across) * tileHeight + 6;
    first += count;
  }
  return { cell, gap, labelHeight, width, height: y, groups };
}

/** The largest size of squares with which all nodes fit into the height, or the smallest size. */
export function fitting(nodes: readonly NodeShape[], width: number, height: number): number {
  const fits = CELLS.filter((cell) => layout(nodes, width, cell).height <= height);
  return Math.max(CELLS[0], ...fits.filter((cell) => cell <= LARGEST_FITTED));
}

export function boxOf(shown: Layout, node: number): Box {
  const group = groupOf(shown, node);
  if (!group) return { x: 0, y: 0, width: 0, height: 0 };
  const position = node - group.first;
  const x = PADDING + (position % group.across) * group.tileWidth;
  const y = group.top + Math.floor(position / group.across) * group.tileHeight;
  const spacing = spacingFor(shown.cell);
  return { x, y, width: group.tileWidth - spacing, height: group.tileHeight - spacing };
}

export function cellBox(shown: Layout, place: Place): Box {
  const group = groupOf(shown, place.node);
  const tile = boxOf(shown, place.node);
  const columns = group?.columns ?? 1;
  const pitch = shown.cell + shown.gap;
  const x = tile.x + (place.device % columns) * pitch;
  const y = tile.y + Math.floor(place.device / columns) * pitch;
  return { x, y, width: shown.cell, height: shown.cell };
}

/** The GPU at a point. null: none. */
export function placeAt(
  shown: Layout,
  nodes: readonly NodeShape[],
  x: number,
  y: number,
): Place | null {
  const group = shown.groups.findLast((each) => each.top <= y);
  if (!group) return null;
  const column = Math.floor((x - PADDING) / group.tileWidth);
  const row = Math.floor((y - group.top) / group.tileHeight);
  const position = row * group.across + column;
  if (column < 0 || column >= group.across || position >= group.count) return null;
  const node = group.first + position;
  const tile = boxOf(shown, node);
  const pitch = shown.cell + shown.gap;
  const inColumn = Math.min(Math.floor((x - tile.x) / pitch), group.columns - 1);
  const last = Math.max((nodes[node]?.devices ?? 1) - 1, 0);
  const device = Math.floor((y - tile.y) / pitch) * group.columns + inColumn;
  return { node, device: Math.min(Math.max(device, 0), last) };
}

export type Step = "left" | "right" | "up" | "down";

/** The next GPU in a direction, across tiles. The same GPU if there is none. */
export function nextPlace(
  shown: Layout,
  nodes: readonly NodeShape[],
  from: Place,
  step: Step,
): Place {
  const group = groupOf(shown, from.node);
  if (!group) return from;
  const column = from.device % group.columns;
  const devices = nodes[from.node]?.devices ?? 1;
  if (step === "left" && column > 0) return { ...from, device: from.device - 1 };
  if (step === "right" && column < group.columns - 1 && from.device + 1 < devices) {
    return { ...from, device: from.device + 1 };
  }
  const inTile = from.device + (step === "down" ? group.columns : -group.columns);
  if ((step === "up" || step === "down") && inTile >= 0 && inTile < devices) {
    return { ...from, device: inTile };
  }
  const node = neighbour(shown, group, from.node, step, nodes.length);
  if (node === from.node) return from;
  return { node, device: entry(nodes[node]?.devices ?? 1, group.columns, from.device, step) };
}

/** Rows of tiles between two heights, as ranges of nodes. */
export function visible(shown: Layout, from: number, to: number): { first: number; end: number }[] {
  return shown.groups.flatMap((group) => {
    const above = Math.max(Math.floor((from - group.top) / group.tileHeight), 0);
    const below = Math.ceil((to - group.top) / group.tileHeight);
    const first = group.first + above * group.across;
    const end = Math.min(group.first + below * group.across, group.first + group.count);
    return first < end ? [{ first, end }] : [];
  });
}

export function groupOf(shown: Layout, node: number): Group | undefined {
  return shown.groups.find((each) => node >= each.first && node < each.first + each.count);
}

function neighbour(shown: Layout, group: Group, node: number, step: Step, all: number): number {
  const position = node - group.first;
  const column = position % group.across;
  if (step === "left") return Math.max(node - 1, 0);
  if (step === "right") return Math.min(node + 1, all - 1);
  const other = position + (step === "down" ? group.across : -group.across);
  if (other >= 0 && other < group.count) return group.first + other;
  const lastRow = Math.floor((group.count - 1) / group.across);
  if (step === "down" && Math.floor(position / group.across) < lastRow) {
    return group.first + group.count - 1;
  }
  const next = shown.groups[shown.groups.indexOf(group) + (step === "down" ? 1 : -1)];
  if (!next) return node;
  if (step === "down") return next.first + Math.min(column, next.count - 1);
  const row = Math.floor((next.count - 1) / next.across);
  return next.first + Math.min(row * next.across + column, next.count - 1);
}

/** The GPU at which a step enters a tile. */
function entry(devices: number, columns: number, from: number, step: Step): number {
  const row = Math.floor(from / columns);
  const column = from % columns;
  const rows = Math.ceil(devices / columns);
  const wanted = {
    left: row * columns + columns - 1,
    right: row * columns,
    up: (rows - 1) * columns + column,
    down: column,
  }[step];
  return Math.min(Math.max(wanted, 0), devices - 1);
}

function columnsFor(devices: number): number {
  if (devices <= 4) return devices;
  return devices <= 16 ? Math.ceil(devices / 2) : Math.ceil(devices / 4);
}

function spacingFor(cell: number): number {
  return cell < 6 ? 3 : cell < 12 ? 5 : 12;
}
