// SPDX-License-Identifier: Apache-2.0
/** What a call answers, asked anew from time to time; what was shown stays while it is asked. */

import { useCallback, useEffect, useState } from "preact/hooks";
import { get, type Problem, type Query } from "../api.ts";
import { token } from "../session.ts";

export interface Asked<T> {
  readonly value: T | null;
  readonly problem: Problem | null;
  readonly loading: boolean;
  readonly again: () => void;
}

/** @param everySeconds 0: once. */
export function useCall<T>(call: string, query: Query = {}, everySeconds = 0): Asked<T> {
  const key = `${call}?${JSON.stringify(query)}`;
  const [state, setState] = useState<{ key: string; value: T | null; problem: Problem | null }>({
    key,
    value: null,
    problem: null,
  });
  const [turn, setTurn] = useState(0);
  const caller = token.value;
  useEffect(() => {
    if (!call || !caller) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async () => {
      const answer = await get<T>(call, query, stop.signal);
      if (stop.signal.aborted) return;
      setState((known) => {
        const before = known.key === key ? known.value : null;
        return answer.ok
          ? { key, value: answer.value, problem: null }
          : { key, value: before, problem: answer.problem };
      });
      const seconds = answer.ok || answer.problem.status === 403 ? everySeconds : 5;
      const gone = !answer.ok && (answer.problem.status === 404 || answer.problem.status === 401);
      if (seconds && !gone) timer = setTimeout(ask, seconds * 1000);
    };
    void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, turn, caller]);
  const fresh = state.key === key;
  return {
    value: fresh ? state.value : null,
    problem: fresh ? state.problem : null,
    loading: !fresh || (state.value === null && state.problem === null),
    again: useCallback(() => setTurn((known) => known + 1), []),
  };
}
