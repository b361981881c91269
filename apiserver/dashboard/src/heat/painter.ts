// SPDX-License-Identifier: Apache-2.0
/**
 * Draws the nodes on a canvas. The canvas has the size of the visible part of the map and does not
 * scroll, because a canvas for 5,000 nodes would be larger than browsers allow. When nodes change,
 * only their tiles are drawn.
 */

import type { Node } from "../contract.ts";
import { count } from "../format.ts";
import { drawHeading, drawTile, type Look } from "./draw.ts";
import { boxOf, type Layout, visible } from "./layout.ts";

export class Painter {
  #canvas: HTMLCanvasElement;
  #to: CanvasRenderingContext2D;
  #nodes: readonly Node[] = [];
  #places = new Map<string, number>();
  #layout: Layout | null = null;
  #look: Look | null = null;
  #top = 0;
  #height = 0;
  #all = false;
  #dirty = new Set<number>();
  #frame = 0;

  constructor(canvas: HTMLCanvasElement) {
    const to = canvas.getContext("2d", { alpha: false });
    if (!to) throw new Error("this browser does not support canvas drawing");
    this.#canvas = canvas;
    this.#to = to;
  }

  /** Shows a map. */
  show(nodes: readonly Node[], shown: Layout, look: Look): void {
    this.#nodes = nodes;
    this.#places = new Map(nodes.map((node, at) => [node.node_name, at]));
    this.#layout = shown;
    this.#look = look;
    this.#schedule();
  }

  /** Shows a part of the map. */
  look(top: number, height: number): void {
    if (top === this.#top && height === this.#height && !this.#all) return;
    this.#top = top;
    this.#height = height;
    this.#schedule();
  }

  /** Updates the figures of nodes. */
  change(nodes: readonly Node[]): void {
    const mine = this.#nodes as Node[];
    for (const node of nodes) {
      const at = this.#places.get(node.node_name);
      if (at === undefined) continue;
      mine[at] = node;
      this.#dirty.add(at);
    }
    if (this.#dirty.size > 0) this.#request();
  }

  stop(): void {
    cancelAnimationFrame(this.#frame);
  }

  #schedule(): void {
    this.#all = true;
    this.#request();
  }

  #request(): void {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #paint(): void {
    const [shown, look] = [this.#layout, this.#look];
    if (!shown || !look || this.#height === 0) return;
    const rows = visible(shown, this.#top, this.#top + this.#height);
    if (this.#all) this.#clear(shown, look);
    this.#to.save();
    this.#to.translate(0, -this.#top);
    if (this.#all) {
      for (const group of shown.groups) {
        const title = `${group.name} · ${count(group.count, "node")}`;
        drawHeading(this.#to, title, group.headingTop, look);
      }
      for (const { first, end } of rows) {
        for (let at = first; at < end; at += 1) this.#tile(at, shown, look);
      }
    } else {
      for (const at of this.#dirty) {
        const box = boxOf(shown, at);
        const seen = box.y < this.#top + this.#height && box.y + box.height > this.#top;
        if (seen) this.#tile(at, shown, look);
      }
    }
    this.#to.restore();
    this.#all = false;
    this.#dirty.clear();
  }

  #tile(at: number, shown: Layout, look: Look): void {
    const node = this.#nodes[at];
    if (node) drawTile(this.#to, shown, node, at, look);
  }

  #clear(shown: Layout, look: Look): void {
    const ratio = globalThis.devicePixelRatio || 1;
    const width = Math.round(shown.width * ratio);
    const height = Math.round(this.#height * ratio);
    if (this.#canvas.width !== width || this.#canvas.height !== height) {
      this.#canvas.width = width;
      this.#canvas.height = height;
      this.#canvas.style.width = `${shown.width}px`;
      this.#canvas.style.height = `${this.#height}px`;
    }
    this.#to.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#to.fillStyle = look.surface;
    this.#to.fillRect(0, 0, shown.width, this.#height);
  }
}
