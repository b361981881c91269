// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Attempt, Job } from "../../../apiserver/dashboard/src/contract.ts";
import { byName } from "../../../apiserver/dashboard/src/format.ts";
import { shade, type Theme } from "../../../apiserver/dashboard/src/heat/colours.ts";
import { spans } from "../../../apiserver/dashboard/src/parts/gantt.ts";
import { FIRST, question } from "../../../apiserver/dashboard/src/parts/question.ts";
import { ticks, timeTicks } from "../../../apiserver/dashboard/src/parts/scale.ts";
import { fit, NEVER } from "../../../apiserver/dashboard/src/parts/start.ts";
import { format, parse } from "../../../apiserver/dashboard/src/route.ts";
import {
  cleaned,
  expiry,
  fault,
  namespace,
  subject,
} from "../../../apiserver/dashboard/src/token.ts";

const CLAIMS = Buffer.from('{"exp":1700000000,"sub":"system:serviceaccount:a:b"}').toString(
  "base64url",
);
const TOKEN = `eyJhbGciOiJSUzI1NiJ9.${CLAIMS}.c2ln`;

test("a job that can never run is not shown as one that fits later", () => {
  assert.equal(fit({ kind: "Never" }, false), NEVER);
  assert.equal(fit({ kind: "WhenReleased" }, false), "It does not fit now.");
  assert.equal(fit({ kind: "Unknown" }, false), "It does not fit now.");
  assert.equal(fit({ kind: "Now" }, true), "It would fit now.");
  assert.equal(fit(null, null), "");
});

test("a token is extracted from pasted text", () => {
  const pasted = [
    `  ${TOKEN}\n`,
    `Bearer ${TOKEN}`,
    `authorization: Bearer ${TOKEN}`,
    `"${TOKEN}"`,
  ];
  for (const each of pasted) assert.equal(cleaned(each), TOKEN);
  assert.equal(cleaned(`${TOKEN.slice(0, 20)}\n  ${TOKEN.slice(20)}`), TOKEN);
});

test("text that cannot be a token is not sent", () => {
  assert.equal(fault(TOKEN), "");
  assert.equal(fault("opaque-token"), "");
  assert.notEqual(fault(""), "");
  assert.notEqual(fault("töken"), "");
});

test("expiry and subject are read from a token if it has them", () => {
  assert.equal(expiry(TOKEN), 1_700_000_000_000);
  assert.equal(subject(TOKEN), "system:serviceaccount:a:b");
  for (const opaque of ["opaque", "a.b.c", "a.bnVsbA.c", ""]) {
    assert.equal(expiry(opaque), null);
    assert.equal(subject(opaque), "");
  }
});

test("only a service account's token has a namespace", () => {
  assert.equal(namespace(TOKEN), "a");
  const person = Buffer.from('{"sub":"jane"}').toString("base64url");
  for (const other of ["opaque", `e30.${person}.c2ln`, ""]) assert.equal(namespace(other), "");
});

test("parsing the address of a view returns the view", () => {
  assert.deepEqual(parse(format("jobs", "team", "a/b %<>")), {
    view: "jobs",
    of: ["team", "a/b %<>"],
  });
  assert.deepEqual(parse(""), { view: "cluster", of: [] });
  assert.deepEqual(parse("#/nodes/%E0%A4%A"), { view: "nodes", of: ["%E0%A4%A"] });
  assert.equal(parse("#/elsewhere").view, "unknown");
});

test("numbers in names are sorted by value", () => {
  assert.deepEqual(["n10", "n2", "n1"].sort(byName), ["n1", "n2", "n10"]);
});

test("axes have round ticks that cover all values", () => {
  assert.deepEqual(ticks(100), [0, 25, 50, 75, 100]);
  assert.deepEqual(ticks(7), [0, 2, 4, 6, 8]);
  assert.deepEqual(ticks(0.3), [0, 0.1, 0.2, 0.3]);
  assert.equal(ticks(0)[0], 0);
  const hour = timeTicks(Date.UTC(2026, 0, 1, 10, 3), Date.UTC(2026, 0, 1, 11, 3), 4);
  assert.deepEqual(
    hour.map((each) => new Date(each).getUTCMinutes()),
    [15, 30, 45, 0],
  );
});

test("the lightness of a scale changes in one direction", () => {
  const directions: readonly [Theme, number][] = [
    ["light", -1],
    ["dark", 1],
  ];
  for (const scale of ["cool", "warm"] as const) {
    for (const [theme, direction] of directions) {
      const steps = Array.from({ length: 33 }, (_, at) => luminance(shade(scale, at / 32, theme)));
      for (const [at, step] of steps.slice(1).entries()) {
        assert.ok((step - (steps[at] ?? 0)) * direction > 0, `${scale} ${theme} at ${at}`);
      }
    }
  }
});

test("the spans of a job are its waiting times and attempts in order, and the last one is open", () => {
  const job = { created: "2026-01-01T10:00:00Z", phase: "Running" } as Job;
  const attempts = [
    attempt(1, "2026-01-01T10:01:00Z", "2026-01-01T10:05:00Z", "Failed"),
    attempt(2, "2026-01-01T10:06:00Z", null, null),
  ];
  const now = Date.parse("2026-01-01T10:30:00Z");
  const found = spans(job, attempts, now);
  const minutes = found.map((each) => [each.title, (each.to - each.from) / 60_000]);
  assert.deepEqual(minutes, [
    ["Waited", 1],
    ["Attempt 1", 4],
    ["Waited", 1],
    ["Attempt 2", 24],
  ]);
  assert.deepEqual(
    found.map((each) => each.open),
    [false, false, false, true],
  );
});

test("a job without attempts waits until now, unless it has ended", () => {
  const created = "2026-01-01T10:00:00Z";
  const now = Date.parse(created) + 60_000;
  assert.equal(spans({ created, phase: "Pending" } as Job, [], now).length, 1);
  const done = [attempt(1, created, "2026-01-01T10:00:30Z", "Succeeded")];
  assert.equal(spans({ created, phase: "Succeeded" } as Job, done, now).length, 1);
  assert.equal(spans({ created: null, phase: "Pending" } as Job, [], now).length, 0);
});

test("a question contains only what was entered in the form", () => {
  assert.deepEqual(question(FIRST).job, { workers: 1, gpus: 1, workload: { name: "matmul" } });
  const asked = question({
    ...FIRST,
    kind: "share",
    model: "h100 sxm, A100-80GB",
    without: "n1,n2\nn3",
    interconnect: "nvlink",
    priority: -5,
  });
  assert.deepEqual(asked.job, {
    workers: 1,
    share: { percent: 50, memory: "20Gi" },
    gpuModels: ["h100 sxm", "A100-80GB"],
    priority: -5,
    interconnect: "nvlink",
    workload: { name: "matmul" },
  });
  assert.deepEqual(asked.without_nodes, ["n1", "n2", "n3"]);
});

function attempt(
  number: number,
  started: string | null,
  finished: string | null,
  outcome: string | null,
): Attempt {
  return { number, started, finished, outcome, reason: "", message: "", nodes: "" };
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = (colour.match(/\d+/g) ?? []).map((part) => {
    const value = Number(part) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
