// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  boxOf,
  CELLS,
  cellBox,
  fitting,
  layout,
  type NodeShape,
  nextPlace,
  placeAt,
  visible,
} from "../../../apiserver/dashboard/src/heat/layout.ts";

function nodes(number: number, devices = 8, group = "H100"): NodeShape[] {
  return Array.from({ length: number }, (_, at) => ({ name: `n${at}`, group, devices }));
}

test("five thousand nodes of eight GPUs fit on a screen", () => {
  const shapes = nodes(5000);
  const cell = fitting(shapes, 1300, 900);
  assert.ok(layout(shapes, 1300, cell).height <= 900);
  assert.ok(cell >= CELLS[0]);
});

test("a few nodes are drawn large", () => {
  assert.equal(fitting(nodes(4), 1300, 900), 44);
});

test("the place at the middle of each square is its GPU", () => {
  const shapes = [...nodes(30, 8, "A"), ...nodes(7, 4, "B"), ...nodes(3, 16, "C")];
  for (const cell of CELLS) {
    const shown = layout(shapes, 400, cell);
    for (const [node, shape] of shapes.entries()) {
      for (let device = 0; device < shape.devices; device += 1) {
        const box = cellBox(shown, { node, device });
        const found = placeAt(shown, shapes, box.x + box.width / 2, box.y + box.height / 2);
        assert.deepEqual(found, { node, device });
      }
    }
  }
});

test("tiles do not overlap and are inside the map", () => {
  const shapes = [...nodes(50, 8, "A"), ...nodes(9, 2, "B")];
  const shown = layout(shapes, 360, 16);
  const boxes = shapes.map((_, node) => boxOf(shown, node));
  for (const [at, box] of boxes.entries()) {
    assert.ok(box.x >= 0 && box.x + box.width <= 360 && box.y + box.height <= shown.height);
    for (const other of boxes.slice(at + 1)) {
      const apart =
        box.x + box.width <= other.x ||
        other.x + other.width <= box.x ||
        box.y + box.height <= other.y ||
        other.y + other.height <= box.y;
      assert.ok(apart);
    }
  }
});

test("the arrow keys reach every GPU from the first one", () => {
  const shapes = [...nodes(13, 8, "A"), ...nodes(5, 4, "B"), ...nodes(1, 3, "C")];
  const shown = layout(shapes, 500, 16);
  const seen = new Set<string>();
  const next = [{ node: 0, device: 0 }];
  for (let at = next.pop(); at; at = next.pop()) {
    const key = `${at.node} ${at.device}`;
    if (seen.has(key)) continue;
    seen.add(key);
    for (const step of ["left", "right", "up", "down"] as const) {
      next.push(nextPlace(shown, shapes, at, step));
    }
  }
  assert.equal(seen.size, 13 * 8 + 5 * 4 + 3);
});

test("a step to the right and back in a row returns to the same GPU", () => {
  const shapes = nodes(10);
  const shown = layout(shapes, 2000, 16);
  let at = { node: 0, device: 0 };
  for (let steps = 0; steps < 20; steps += 1) at = nextPlace(shown, shapes, at, "right");
  assert.equal(at.node, 5);
  for (let steps = 0; steps < 20; steps += 1) at = nextPlace(shown, shapes, at, "left");
  assert.deepEqual(at, { node: 0, device: 0 });
});

test("there is no GPU outside the map", () => {
  const shapes = nodes(3);
  const shown = layout(shapes, 500, 16);
  assert.equal(placeAt(shown, shapes, 499, 5000), null);
  assert.equal(placeAt(shown, shapes, 1, 1), null);
  assert.equal(placeAt(layout([], 500, 16), [], 10, 10), null);
});

test("visible tiles are drawn, and few others", () => {
  const shapes = nodes(5000);
  const shown = layout(shapes, 800, 16);
  const ranges = visible(shown, 3000, 3600);
  const drawn = ranges.reduce((sum, { first, end }) => sum + end - first, 0);
  for (const [node] of shapes.entries()) {
    const box = boxOf(shown, node);
    const seen = box.y + box.height > 3000 && box.y < 3600;
    if (seen) assert.ok(ranges.some(({ first, end }) => node >= first && node < end));
  }
  assert.ok(drawn < 200, `${drawn} tiles`);
});
