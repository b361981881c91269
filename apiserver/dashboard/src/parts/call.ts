// SPDX-License-Identifier: Apache-2.0
/**
 * What a call answers, asked again from time to time.
 *
 * What was shown stays while it is asked, and while nobody answers; not where it is gone, or may not
 * be seen any more.
 */

import { useCallback, useEffect, useState } from "preact/hooks";
import { type Answer, get, type Problem, type Query } from "../api.ts";
import { token } from "../session.ts";

export interface Asked<T> {
  readonly value: T | null;
  readonly problem: Problem | null;
  readonly loading: boolean;
  readonly again: () => void;
}

/** @param everySeconds 0: once. @param call empty: nothing is asked. */
export function useCall<T>(call: string, query: Query = {}, everySeconds = 0): Asked<T> {
  const key = call && `${call}?${JSON.stringify(query)}`;
  return useAnswer<T>(key, (signal) => get<T>(call, query, signal), everySeconds);
}

/**
 * The same of an answer that takes several calls.
 *
 * @param key says what is asked; empty: nothing.
 */
export function useAnswer<T>(
  key: string,
  ask: (signal: AbortSignal) => Promise<Answer<T>>,
  everySeconds = 0,
): Asked<T> {
  const [state, setState] = useState<{ key: string; value: T | null; problem: Problem | null }>({
    key,
    value: null,
    problem: null,
  });
  const [turn, setTurn] = useState(0);
  const caller = token.value;
  useEffect(() => {
    if (!key || !caller) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      const answer = await ask(stop.signal);
      if (stop.signal.aborted) return;
      setState((known) => {
        const before =
          known.key === key && !(!answer.ok && isLost(answer.problem)) ? known.value : null;
        return answer.ok
          ? { key, value: answer.value, problem: null }
          : { key, value: before, problem: answer.problem };
      });
      const seconds = answer.ok || answer.problem.status === 403 ? everySeconds : 5;
      const gone = !answer.ok && (answer.problem.status === 404 || answer.problem.status === 401);
      if (seconds && !gone) timer = setTimeout(look, seconds * 1000);
    };
    void look();
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

function isLost(problem: Problem): boolean {
  return problem.status === 404 || problem.status === 403;
}
