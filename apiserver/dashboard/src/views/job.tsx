// SPDX-License-Identifier: Apache-2.0
/** One job: its state, the reason why it waits, its attempts and the placement of its workers. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { seconds } from "../clock.ts";
import type { Explanation, Job, JobDetail } from "../contract.ts";
import { age, count, duration, queued } from "../format.ts";
import { cluster, keyOf } from "../live/cluster.ts";
import { useCall } from "../parts/call.ts";
import { Workers } from "../parts/devices.tsx";
import { spans } from "../parts/gantt.ts";
import { Gantt } from "../parts/gantt.tsx";
import { NodeNames } from "../parts/names.tsx";
import { Empty, Loading, Missing } from "../parts/notice.tsx";
import { Phase } from "../parts/phase.tsx";
import { fit } from "../parts/start.ts";
import { format } from "../route.ts";

export function JobView({ namespace, name }: { namespace: string; name: string }) {
  const path = `jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const call = useCall<JobDetail>(path, {}, 10);
  const live = cluster.jobsVersion.value && cluster.jobs.get(`${namespace}/${name}`);
  const changed = live ? `${live.phase} ${live.attempt} ${live.nodes}` : "";
  const before = useRef(changed);
  useEffect(() => {
    if (changed !== before.current) call.again();
    before.current = changed;
  }, [changed]);
  const detail = call.value;
  const gone = call.problem?.status === 404 && !live;
  const job = gone ? undefined : live || detail?.job;
  return (
    <main class="view" id="main" tabIndex={-1}>
      <p class="crumbs">
        <a href={format("jobs")}>Jobs</a> / {namespace}
      </p>
      <div class="view-head">
        <h1>{name}</h1>
        {job && <Phase of={job.phase} />}
      </div>
      {gone ? (
        <Empty title="This job does not exist">It was deleted or never existed.</Empty>
      ) : call.problem && !detail ? (
        <Missing what={`Job ${namespace}/${name}`} problem={call.problem} again={call.again} />
      ) : !detail || !job ? (
        <Loading what="The job" />
      ) : (
        <>
          <Facts job={job} />
          {job.phase === "Pending" ? (
            <Explained path={path} before={job.message} />
          ) : (
            job.message && <p class="message">{job.message}</p>
          )}
          <h2>Attempts</h2>
          <Attempts detail={detail} job={job} />
          <h2>Workers</h2>
          {detail.workers.length ? (
            <Workers workers={detail.workers} />
          ) : (
            <Empty title="No worker is placed now" />
          )}
        </>
      )}
    </main>
  );
}

function Facts({ job }: { job: Job }) {
  const facts: readonly [string, ComponentChildren][] = [
    ["Workers", job.workers],
    ["GPUs", job.gpus],
    ["Nodes", job.nodes ? <NodeNames of={job.nodes} /> : "none"],
    ["Priority", job.priority],
    ["Attempt", job.attempt || "none yet"],
    ["Restarts", job.restarts],
    ["Preemptions", job.preemptions],
    ["Workload", job.workload || "its own"],
    ["Result", job.result || "none"],
    ["Age", age(job.created, seconds.value)],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Attempts({ detail, job }: { detail: JobDetail; job: Job }) {
  const shown = spans(job, detail.attempts, seconds.value);
  return shown.length > 0 ? <Gantt spans={shown} /> : <Empty title="No attempt yet" />;
}

/** @param before the job's last message. Its figures may be out of date. */
function Explained({ path, before }: { path: string; before: string }) {
  const { value, problem } = useCall<Explanation>(`${path}/explain`, {}, 10);
  if (!value) {
    return (
      <>
        {before && <p class="message">{before}</p>}
        {problem ? (
          <Missing what="Why it waits" problem={problem} />
        ) : (
          <Loading what="Why it waits" rows={2} />
        )}
      </>
    );
  }
  const others = value.ahead_hidden;
  const sentence = fit(value.start, value.fits_now);
  return (
    <section aria-label="Why it waits" class="explained">
      <h2>Why it waits</h2>
      {value.message && <p>{value.message}</p>}
      <ul>
        {value.position !== null && <li>{queued(value.position, value.waiting)}</li>}
        {sentence && <li>{sentence}</li>}
        {value.estimated_wait_seconds !== null && (
          <li>It is expected to start within {duration(value.estimated_wait_seconds)}.</li>
        )}
        {value.ahead.length + others > 0 && (
          <li>
            Ahead of it:{" "}
            {value.ahead.map((each, at) => (
              <span key={`${each.kind} ${keyOf(each)}`}>
                {at > 0 && ", "}
                {each.kind === "Pod" ? (
                  `pod ${keyOf(each)}`
                ) : (
                  <a href={format("jobs", each.namespace, each.name)}>{keyOf(each)}</a>
                )}
              </span>
            ))}
            {others > 0 &&
              `${value.ahead.length ? " and " : ""}${count(others, "job")} of namespaces that you may not see`}
          </li>
        )}
      </ul>
      {value.would_help.length > 0 && (
        <>
          <h3>What would help</h3>
          <ul>
            {value.would_help.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
