// SPDX-License-Identifier: Apache-2.0
/**
 * The answer of a call, which is repeated from time to time.
 *
 * The last answer stays during a call and while the server does not answer. It is removed if the
 * object is gone or if the user may not see it any more.
 */

import { useCallback, useEffect, useState } from "preact/hooks";
import { type Answer, get, type Problem, type Query } from "../api.ts";
import { token } from "../session.ts";

export interface CallState<T> {
  readonly value: T | null;
  readonly problem: Problem | null;
  readonly loading: boolean;
  readonly again: () => void;
}

/** @param everySeconds 0: once. @param call empty: no call is made. */
export function useCall<T>(call: string, query: Query = {}, everySeconds = 0): CallState<T> {
  const key = call && `${call}?${JSON.stringify(query)}`;
  return useAnswer<T>(key, (signal) => get<T>(call, query, signal), everySeconds);
}

/**
 * Like useCall, for an answer that takes several calls.
 *
 * @param key identifies the request. Empty: no call is made.
 */
export function useAnswer<T>(
  key: string,
  ask: (signal: AbortSignal) => Promise<Answer<T>>,
  everySeconds = 0,
): CallState<T> {
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
    const refresh = async () => {
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
      if (seconds && !gone) timer = setTimeout(refresh, seconds * 1000);
    };
    void refresh();
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
