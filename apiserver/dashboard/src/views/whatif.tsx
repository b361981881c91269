// SPDX-License-Identifier: Apache-2.0
/** The what-if question: what would happen to a job that does not exist. */

import { useState } from "preact/hooks";
import { type Answer, post } from "../api.ts";
import { MAX, MIN, POLICIES } from "../choices.ts";
import type { WhatIf } from "../contract.ts";
import { count, duration, queued } from "../format.ts";
import { keyOf } from "../live/cluster.ts";
import { Workers } from "../parts/devices.tsx";
import { Missing } from "../parts/notice.tsx";
import { Phase } from "../parts/phase.tsx";
import { FIRST, type Form, question } from "../parts/question.ts";
import { NEVER } from "../parts/start.ts";
import { format } from "../route.ts";
import { token } from "../session.ts";
import { namespace } from "../token.ts";

const SENTENCES = {
  Starts: "It would start at once.",
  Waits: "It would wait.",
  Never: NEVER,
};

export function WhatIfView() {
  const [form, setForm] = useState(() => ({
    ...FIRST,
    namespace: namespace(token.value) || FIRST.namespace,
  }));
  const [answer, setAnswer] = useState<Answer<WhatIf> | null>(null);
  const [asking, setAsking] = useState(false);
  const set = <K extends keyof Form>(name: K, value: Form[K]) =>
    setForm((known) => ({ ...known, [name]: value }));
  const ask = async (event: Event) => {
    event.preventDefault();
    setAsking(true);
    setAnswer(await post<WhatIf>("what-if", question(form)));
    setAsking(false);
  };
  return (
    <main class="view" id="main" tabIndex={-1}>
      <div class="view-head">
        <h1>What if</h1>
        <span class="muted">
          where a job would run, by the scheduler's own code; nothing is made
        </span>
      </div>
      <div class="what-if">
        <form onSubmit={ask}>
          <Text
            label="Namespace"
            value={form.namespace}
            set={(to) => set("namespace", to)}
            required
          />
          <Count
            label="Workers"
            value={form.workers}
            most={MAX.workers}
            set={(to) => set("workers", to)}
          />
          <fieldset class="choice">
            <legend>Each worker has</legend>
            <label>
              <input
                type="radio"
                name="kind"
                checked={form.kind === "whole"}
                onChange={() => set("kind", "whole")}
              />
              <span>whole GPUs</span>
            </label>
            <label>
              <input
                type="radio"
                name="kind"
                checked={form.kind === "share"}
                onChange={() => set("kind", "share")}
              />
              <span>a share of one</span>
            </label>
          </fieldset>
          {form.kind === "whole" ? (
            <Count label="GPUs" value={form.gpus} most={MAX.gpus} set={(to) => set("gpus", to)} />
          ) : (
            <>
              <Count
                label="Percent"
                value={form.percent}
                most={MAX.percent}
                set={(to) => set("percent", to)}
              />
              <Count
                label="Memory, GiB"
                value={form.memory}
                most={1024}
                set={(to) => set("memory", to)}
              />
            </>
          )}
          <Text
            label="Models"
            hint="any; or H100, L4"
            value={form.model}
            set={(to) => set("model", to)}
          />
          <label>
            Policy
            <select
              value={form.policy}
              onChange={(event) => set("policy", event.currentTarget.value)}
            >
              <option value="">the cluster's</option>
              {POLICIES.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
          <Count
            label="Priority"
            value={form.priority}
            least={MIN.priority}
            most={MAX.priority}
            set={(to) => set("priority", to)}
          />
          <Text
            label="Without nodes"
            hint="none; or n1, n2"
            value={form.without}
            set={(to) => set("without", to)}
          />
          <label class="tick">
            <input
              type="checkbox"
              checked={form.interconnect === "nvlink"}
              onChange={(event) =>
                set("interconnect", event.currentTarget.checked ? "nvlink" : "any")
              }
            />
            NVLink between a worker's GPUs
          </label>
          <label class="tick">
            <input
              type="checkbox"
              checked={form.oneWorkerPerNode}
              onChange={(event) => set("oneWorkerPerNode", event.currentTarget.checked)}
            />
            One worker per node
          </label>
          <button type="submit" class="primary" disabled={asking}>
            {asking ? "Asking …" : "Ask"}
          </button>
        </form>
        <section class="what-if-answer" aria-live="polite" aria-label="Answer">
          {answer === null ? (
            <p class="muted">The answer appears here.</p>
          ) : answer.ok ? (
            <AnswerText answer={answer.value} />
          ) : (
            <Missing what="What if" problem={answer.problem} />
          )}
        </section>
      </div>
    </main>
  );
}

function AnswerText({ answer }: { answer: WhatIf }) {
  const stopped = answer.preempts.length + answer.preempts_hidden;
  return (
    <>
      <p class="outcome">
        <Phase of={answer.outcome} /> {SENTENCES[answer.outcome]}
      </p>
      {answer.message && <p>{answer.message}</p>}
      <ul>
        {answer.position !== null && <li>{queued(answer.position, answer.waiting)}</li>}
        {answer.estimated_wait_seconds !== null && (
          <li>It is expected to start within {duration(answer.estimated_wait_seconds)}.</li>
        )}
        {stopped > 0 && (
          <li>
            Would preempt:{" "}
            {answer.preempts.map((each, at) => (
              <span key={keyOf(each)}>
                {at > 0 && ", "}
                <a href={format("jobs", each.namespace, each.name)}>{keyOf(each)}</a>
              </span>
            ))}
            {answer.preempts_hidden > 0 &&
              `${answer.preempts.length ? " and " : ""}${count(answer.preempts_hidden, "job")} of other namespaces`}
          </li>
        )}
      </ul>
      {answer.would_help.length > 0 && (
        <>
          <h2>What would help</h2>
          <ul>
            {answer.would_help.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </>
      )}
      {answer.workers.length > 0 && (
        <>
          <h2>Where</h2>
          <Workers workers={answer.workers} />
        </>
      )}
    </>
  );
}

interface Field<T> {
  readonly label: string;
  readonly value: T;
  readonly set: (value: T) => void;
}

function Text({
  label,
  hint,
  value,
  set,
  required,
}: Field<string> & {
  hint?: string;
  required?: boolean;
}) {
  return (
    <label>
      {label}
      <input
        value={value}
        placeholder={hint}
        required={required}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        onInput={(event) => set(event.currentTarget.value)}
      />
    </label>
  );
}

function Count({
  label,
  value,
  least = 1,
  most,
  set,
}: Field<number> & {
  least?: number;
  most: number;
}) {
  return (
    <label>
      {label}
      <input
        type="number"
        inputMode="numeric"
        min={least}
        max={most}
        step={1}
        required
        value={Number.isNaN(value) ? "" : value}
        onInput={(event) => set(event.currentTarget.valueAsNumber)}
      />
    </label>
  );
}
