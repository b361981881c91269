// SPDX-License-Identifier: Apache-2.0
/** Notice for an empty list: nothing exists, or the token may not list it. */

import type { ComponentChildren } from "preact";
import { useCall } from "./call.ts";
import { Empty, Loading } from "./notice.tsx";

interface Props {
  /** Name of the objects, such as "jobs". */
  readonly what: string;
  /** Kind that the token may not list. */
  readonly kind: "GPUJobs" | "GPUQuotas";
  /** Value from the list's answer. null: a call finds out. */
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
      This token may not list {kind} in its own namespace or in any that has some. It needs a role
      such as <code>gpupack-view</code>.
    </Empty>
  );
}
