// SPDX-License-Identifier: Apache-2.0
/** The view that is shown. It is in the fragment of the address, which is not sent to the server. */

export type View =
  | "cluster"
  | "nodes"
  | "jobs"
  | "queue"
  | "quotas"
  | "packing"
  | "what-if"
  | "cost"
  | "unknown";

export interface Route {
  readonly view: View;
  /** Arguments of the view: a node's name, or a job's namespace and name. */
  readonly of: readonly string[];
}

export const VIEWS: readonly { readonly view: View; readonly title: string }[] = [
  { view: "cluster", title: "Cluster" },
  { view: "nodes", title: "Nodes" },
  { view: "jobs", title: "Jobs" },
  { view: "queue", title: "Queue" },
  { view: "quotas", title: "Quotas" },
  { view: "packing", title: "Packing" },
  { view: "what-if", title: "What if" },
  { view: "cost", title: "Cost" },
];

export function parse(fragment: string): Route {
  const [first = "", ...of] = fragment
    .replace(/^#?\/?/, "")
    .split("/")
    .map(decoded);
  if (first === "") return { view: "cluster", of: [] };
  const known = VIEWS.find((each) => each.view === first);
  return known ? { view: known.view, of: of.filter(Boolean) } : { view: "unknown", of: [first] };
}

export function format(view: View, ...of: readonly string[]): string {
  return `#/${[view, ...of].map(encodeURIComponent).join("/")}`;
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
