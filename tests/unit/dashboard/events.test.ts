// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_SECONDS, pauseSeconds } from "../../../apiserver/dashboard/src/live/backoff.ts";
import { EventReader } from "../../../apiserver/dashboard/src/live/events.ts";

const STREAM =
  ':\n\nevent: nodes\ndata: {"changed":[]}\n\nevent: jobs\r\ndata: a\r\ndata: b\r\n\r\ndata:c\n\n';
const EVENTS = [
  { kind: "nodes", data: '{"changed":[]}' },
  { kind: "jobs", data: "a\nb" },
  { kind: "message", data: "c" },
];

test("events do not depend on how the stream is split", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const reader = new EventReader();
    const found = [];
    for (let at = 0; at < STREAM.length; at += size) {
      found.push(...reader.read(STREAM.slice(at, at + size)));
    }
    assert.deepEqual(found, EVENTS);
  }
});

test("an event that has not ended is not returned", () => {
  const reader = new EventReader();
  assert.deepEqual(reader.read("event: nodes\ndata: 1\n"), []);
  assert.deepEqual(reader.read("\n"), [{ kind: "nodes", data: "1" }]);
});

test("an event of ten megabytes in small pieces is parsed within the time limit", () => {
  const reader = new EventReader();
  const began = performance.now();
  const piece = "x".repeat(4096);
  reader.read("data: ");
  for (let pieces = 0; pieces < 2560; pieces += 1) reader.read(piece);
  const [event] = reader.read("\n\n");
  assert.equal(event?.data.length, 2560 * 4096);
  assert.ok(performance.now() - began < 1000);
});

test("pauses grow to their maximum and are never zero", () => {
  const longest = [0, 1, 2, 3, 10, 1000].map((failures) => pauseSeconds(failures, 0));
  assert.deepEqual(longest, [1, 2, 4, 8, MAX_SECONDS, MAX_SECONDS]);
  assert.equal(pauseSeconds(0, 1), 0.5);
});
