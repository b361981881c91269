// SPDX-License-Identifier: Apache-2.0
/** What is said where a list is empty: that there is nothing, or that the token may not list it. */

import type { ComponentChildren } from "preact";
import { useCall } from "./call.ts";
import { Empty, Loading } from "./notice.tsx";

interface Props {
  /** What there would be, such as "jobs". */
  readonly what: string;
  /** Of which kind the token may list none. */
  readonly kind: "GPUJobs" | "GPUQuotas";
  /** As the list's answer says; null: it is asked for. */
  readonly mayList: boolean | null;
  readonly title: string;
  readonly children?: ComponentChildren;
}

export function Nothing({ what, kind, mayList, title, children }: Props) {
  const asked = useCall<{ readonly may_list: boolean }>(
    mayList === null ? "jobs" : "",
    { limit: 1 },
    10,
  );
  const may = mayList ?? asked.value?.may_list ?? (asked.problem ? true : null);
  if (may === null) return <Loading what={what} />;
  if (may) return <Empty title={title}>{children}</Empty>;
  return (
    <Empty title={`There are no ${what} that you may see`}>
      This token may list {kind} in no namespace that has any, nor in its own; it needs a role such
      as <code>gpupack-view</code>.
    </Empty>
  );
}
