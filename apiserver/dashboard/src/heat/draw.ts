// SPDX-License-Identifier: Apache-2.0
/** Draws tiles of the heat map. */

import type { Node } from "../contract.ts";
import { EMPTY, isLight, MARKS, type Theme } from "./colours.ts";
import { type Box, boxOf, groupOf, LABELLED_FROM, type Layout } from "./layout.ts";
import { colourOf, type Holders, type Measure, type Ranks } from "./measures.ts";

export interface Look {
  readonly theme: Theme;
  readonly measure: Measure;
  readonly holders: Holders;
  readonly ranks: Ranks;
  /** Colours of the page, as in CSS. */
  readonly surface: string;
  readonly text: string;
  readonly muted: string;
  readonly font: string;
  /** Whether a node matches the search. */
  readonly wanted: (node: Node) => boolean;
}

const DIMMED = 0.18;

export function drawTile(
  to: CanvasRenderingContext2D,
  shown: Layout,
  node: Node,
  at: number,
  look: Look,
): void {
  const group = groupOf(shown, at);
  if (!group) return;
  const tile = boxOf(shown, at);
  to.fillStyle = look.surface;
  to.fillRect(tile.x - 2, tile.y - 2, group.tileWidth, group.tileHeight);
  to.globalAlpha = look.wanted(node) ? 1 : DIMMED;
  const pitch = shown.cell + shown.gap;
  for (const [position, device] of node.devices.entries()) {
    const x = tile.x + (position % group.columns) * pitch;
    const y = tile.y + Math.floor(position / group.columns) * pitch;
    const colour = colourOf(device, look.measure, look.theme, look.holders, look.ranks);
    if (colour === null) unknown(to, x, y, shown.cell, look);
    else {
      to.fillStyle = colour;
      to.fillRect(x, y, shown.cell, shown.cell);
    }
    if (device.health !== "Healthy") {
      mark(to, device.health, x, y, shown.cell, colour ?? look.surface);
    }
  }
  if (!node.ready) struck(to, tile, shown, look);
  if (shown.labelHeight) label(to, node.node_name, tile, shown, look);
  to.globalAlpha = 1;
}

export function drawHeading(
  to: CanvasRenderingContext2D,
  text: string,
  top: number,
  look: Look,
): void {
  to.font = `600 12px ${look.font}`;
  to.textBaseline = "alphabetic";
  to.fillStyle = look.muted;
  to.fillText(text, 12, top + 19);
}

/**
 * Draws a shape for each health except Healthy. The smallest squares get a dot.
 *
 * @param on the colour of the square, from which the mark differs in lightness.
 */
function mark(
  to: CanvasRenderingContext2D,
  health: string,
  x: number,
  y: number,
  cell: number,
  on: string,
): void {
  const colour = isLight(on) ? MARKS.light : MARKS.dark;
  if (cell < 6) {
    to.fillStyle = colour;
    const size = health === "Failed" ? cell : cell / 2;
    to.fillRect(x + (cell - size) / 2, y + (cell - size) / 2, size, size);
    return;
  }
  to.beginPath();
  outline(to, health, x, y, cell);
  to.strokeStyle = colour;
  to.lineWidth = Math.max(cell / 9, 1.2);
  to.stroke();
}

function outline(
  to: CanvasRenderingContext2D,
  health: string,
  x: number,
  y: number,
  cell: number,
): void {
  const [low, half, high] = [cell * 0.28, cell / 2, cell * 0.72];
  const line = (...points: readonly (readonly [number, number])[]) => {
    for (const [at, [right, down]] of points.entries()) {
      if (at === 0) to.moveTo(x + right, y + down);
      else to.lineTo(x + right, y + down);
    }
  };
  if (health === "Failed") {
    line([low, low], [high, high]);
    line([high, low], [low, high]);
  } else if (health === "Cordoned") {
    line([low, half], [high, half]);
  } else if (health === "Maintenance") {
    line([cell * 0.38, low], [cell * 0.38, high]);
    line([cell * 0.62, low], [cell * 0.62, high]);
  } else {
    line([half, low], [high, high], [low, high], [half, low]);
    to.closePath();
  }
}

function unknown(
  to: CanvasRenderingContext2D,
  x: number,
  y: number,
  cell: number,
  look: Look,
): void {
  to.fillStyle = EMPTY[look.theme];
  to.fillRect(x, y, cell, cell);
  to.fillStyle = look.surface;
  const rim = Math.max(cell / 8, 0.5);
  to.fillRect(x + rim, y + rim, cell - 2 * rim, cell - 2 * rim);
}

function struck(to: CanvasRenderingContext2D, tile: Box, shown: Layout, look: Look): void {
  to.strokeStyle = MARKS[look.theme];
  to.lineWidth = shown.cell < 6 ? 1 : 1.5;
  to.setLineDash(shown.cell < 6 ? [] : [3, 2]);
  to.strokeRect(tile.x - 1, tile.y - 1, tile.width + 2, tile.height - shown.labelHeight + 2);
  to.setLineDash([]);
}

function label(
  to: CanvasRenderingContext2D,
  name: string,
  tile: Box,
  shown: Layout,
  look: Look,
): void {
  to.font = `12px ${look.font}`;
  to.textBaseline = "alphabetic";
  to.fillStyle = shown.cell >= LABELLED_FROM ? look.text : look.muted;
  to.fillText(shortened(to, name, tile.width), tile.x, tile.y + tile.height - 4);
}

/** Shortens a name at its beginning, because nodes differ at the end. */
function shortened(to: CanvasRenderingContext2D, name: string, width: number): string {
  if (to.measureText(name).width <= width) return name;
  let kept = Math.min(name.length, Math.floor(width / 5));
  while (kept > 1 && to.measureText(`…${name.slice(-kept)}`).width > width) kept -= 1;
  return `…${name.slice(-kept)}`;
}
