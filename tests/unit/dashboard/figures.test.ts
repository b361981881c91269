// SPDX-License-Identifier: Apache-2.0
/** The page is held to the cases that the command line is held to, in test_figures.py. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import {
  age,
  count,
  duration,
  figure,
  mebibytes,
  memory,
  percent,
  power,
  queued,
  shownOf,
  temperature,
  whole,
} from "../../../apiserver/dashboard/src/format.ts";

const HELPERS = join(import.meta.dirname, "../../helpers");

// biome-ignore lint/suspicious/noExplicitAny: what a case gives is its function's own
const FORMATTED: Readonly<Record<string, (given: any) => string | number>> = {
  percent,
  whole,
  hours: (value) => figure(value),
  cost: (value) => figure(value, 2),
  memory,
  mebibytes,
  temperature,
  power,
  duration,
  count: (number) => count(number, "GPU"),
  queued: ([position, waiting]) => queued(position, waiting),
};

const cases = JSON.parse(await readFile(join(HELPERS, "figures.json"), "utf8")) as Record<
  string,
  [unknown, string | number][]
>;

for (const [quantity, formatted] of Object.entries(cases)) {
  test(`${quantity} has the same format as on the command line`, () => {
    for (const [given, wanted] of formatted) assert.equal(FORMATTED[quantity]?.(given), wanted);
  });
}

test("the age of an unknown moment is empty", () => {
  assert.equal(age("2026-11-25T11:59:00Z", Date.parse("2026-11-25T12:00:00Z")), "1m");
  assert.equal(age(null, 0), "");
});

test("the number of pending jobs includes jobs that are not shown", () => {
  assert.equal(shownOf(0, 0), "0 jobs waiting");
  assert.equal(shownOf(1, 1), "1 job waiting");
  assert.equal(shownOf(3, 2), "3 jobs waiting");
  assert.equal(shownOf(2, 12), "2 jobs shown, 12 waiting in the cluster");
  assert.equal(shownOf(1, 1200), "1 job shown, 1,200 waiting in the cluster");
});
