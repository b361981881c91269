// SPDX-License-Identifier: Apache-2.0
/** Holders of GPUs, fetched as long as a view shows them. */

import { useEffect, useState } from "preact/hooks";
import type { Problem } from "../api.ts";
import type { Holder } from "../contract.ts";
import { token } from "../session.ts";
import { cluster } from "./cluster.ts";
import { pages, pause } from "./feed.ts";

const EVERY_SECONDS = 20;

/** Fetches holders. Returns the problem if they are unknown; null: they are known, or the login shows it. */
export function useHolders(): Problem | null {
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    if (!token.value) return;
    const stop = new AbortController();
    const refresh = async () => {
      while (!stop.signal.aborted) {
        const found = await pages<Holder>("holders", {}, stop.signal);
        if (stop.signal.aborted) return;
        if ("status" in found) {
          setProblem(found.status === 401 ? null : found);
          if (found.status === 404 || found.status === 401) return;
        } else {
          setProblem(null);
          cluster.updateHolders(found);
        }
        await pause(EVERY_SECONDS, stop.signal);
      }
    };
    void refresh();
    return () => stop.abort();
  }, [token.value]);
  return problem;
}
