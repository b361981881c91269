// SPDX-License-Identifier: Apache-2.0
/**
 * What the page has of the lists of a server, by its own modules, as one line of JSON.
 *
 *     node tests/helpers/page_lists.ts https://localhost:8444/ TOKEN '{"since": …, "group_by": "job"}'
 */

const [base = "", token = "", asked = "{}"] = process.argv.slice(2);
const real = globalThis.fetch;
globalThis.fetch = (input, init) => real(new URL(String(input), base), init);

const { signIn } = await import("../../apiserver/dashboard/src/session.ts");
const { costs, costsAsCsv } = await import("../../apiserver/dashboard/src/costs.ts");
const { queue } = await import("../../apiserver/dashboard/src/queue.ts");
const { pages } = await import("../../apiserver/dashboard/src/live/feed.ts");
const signal = new AbortController().signal;

signIn(token);
const csv = await costsAsCsv(JSON.parse(asked));
const found = {
  cost: await costs(JSON.parse(asked), signal),
  csv: csv.ok ? await csv.value.text() : csv.problem,
  queue: await queue("", signal),
  jobs: await pages("jobs", {}, signal),
  nodes: await pages("nodes", {}, signal),
};
console.log(JSON.stringify(found));
