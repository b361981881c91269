# SPDX-License-Identifier: Apache-2.0
"""The engine as one loop: engine/simulator.py for `drop` and `fifo-skip`.

Each instant takes all ends, all arrivals, then the jobs that can start, then a sample. The loop
returns when the policy is due to be informed, in the middle of an instant, and resumes there.
"""

import numpy as np

from gpupack_placement import WHOLE_GPU
from gpupack_simulator.compiled.ends import pop, push
from gpupack_simulator.compiled.holdings import best_row, fits, release, take
from gpupack_simulator.compiled.loops import compiled
from gpupack_simulator.compiled.tables import (
    DROPPED,
    NO_HOLDER,
    RUNS,
    SUCCEEDED,
    WAITS,
    Ends,
    Jobs,
    Nodes,
    Prices,
    RequestClasses,
    Rules,
    Samples,
    State,
)


@compiled
def advance(
    states: State,
    rules: Rules,
    nodes: Nodes,
    classes: RequestClasses,
    jobs: Jobs,
    ends: Ends,
    samples: Samples,
    prices: Prices,
) -> bool:
    """Advance to the end (True), or until the policy is due; `states` has one element."""
    state, number = states[0], len(jobs.arrival)
    while True:
        if not state.within:
            time = _next_time(state, jobs, ends)
            spent = state.arrived == number and not state.ending
            idle = state.arrived == number and not state.running and not state.queued
            if time > rules.until or time == np.inf or spent or idle:
                return True
            _pass_time(state, rules, time)
            while state.ending and ends.time[0] <= time:
                _finish(state, rules, nodes, classes, jobs, ends)
        while state.arrived < number and jobs.arrival[state.arrived] <= state.now:
            _arrive(state, rules, classes, jobs)
            if state.arrived == state.due:
                state.within = 1
                return False
        state.within = 0
        _serve(state, rules, nodes, classes, jobs, ends, prices)
        _sample(state, rules, samples)


@compiled
def _next_time(state: State, jobs: Jobs, ends: Ends) -> float:
    """Return the time of the next event; infinity: there is none."""
    time: float = state.next_sample
    if state.ending:
        time = min(time, ends.time[0])
    if state.arrived < len(jobs.arrival):
        time = min(time, jobs.arrival[state.arrived])
    return time


@compiled
def _pass_time(state: State, rules: Rules, time: float) -> None:
    since = max(state.now, rules.measured_from)
    if time > since:
        state.area += state.allocated_milli * (time - since)
    state.now = time


@compiled
def _arrive(state: State, rules: Rules, classes: RequestClasses, jobs: Jobs) -> None:
    job = state.arrived
    class_ = jobs.request_class[job]
    jobs.finished_before[job] = state.finished
    state.arrived += 1
    state.events += 1
    state.arrived_milli += _milli(classes, class_)
    if rules.keeps and classes.never[class_]:
        jobs.state[job], jobs.ended[job] = DROPPED, state.now
        return
    jobs.state[job], jobs.behind[job] = WAITS, NO_HOLDER
    if classes.first[class_] == NO_HOLDER:
        classes.first[class_] = job
    else:
        jobs.behind[classes.last[class_]] = job
    classes.last[class_] = job
    state.queued += 1


@compiled
def _serve(
    state: State,
    rules: Rules,
    nodes: Nodes,
    classes: RequestClasses,
    jobs: Jobs,
    ends: Ends,
    prices: Prices,
) -> None:
    """Start jobs by arrival and skip those that do not fit; drop them if jobs may not wait."""
    while state.queued:
        job = NO_HOLDER
        for class_ in range(len(classes.first)):
            first = classes.first[class_]
            if (
                first != NO_HOLDER
                and not classes.closed[class_]
                and (job == NO_HOLDER or first < job)
            ):
                job = first
        if job == NO_HOLDER:
            return
        class_ = jobs.request_class[job]
        row = best_row(nodes, classes, class_, prices)
        if row != NO_HOLDER:
            _leave_queue(state, classes, jobs, class_)
            take(nodes, row, classes, class_, jobs, job, prices)
            _start(state, classes, jobs, ends, job)
        elif rules.keeps:
            classes.closed[class_] = True
        else:
            _leave_queue(state, classes, jobs, class_)
            jobs.state[job], jobs.ended[job] = DROPPED, state.now


@compiled
def _leave_queue(state: State, classes: RequestClasses, jobs: Jobs, class_: int) -> None:
    classes.first[class_] = jobs.behind[classes.first[class_]]
    state.queued -= 1


@compiled
def _start(state: State, classes: RequestClasses, jobs: Jobs, ends: Ends, job: int) -> None:
    jobs.state[job], jobs.started[job] = RUNS, state.now
    state.allocated_milli += _milli(classes, jobs.request_class[job])
    state.running += 1
    state.started += 1
    if state.now + jobs.duration[job] < np.inf:
        push(ends, state.ending, state.now + jobs.duration[job], state.started, job)
        state.ending += 1


@compiled
def _finish(
    state: State, rules: Rules, nodes: Nodes, classes: RequestClasses, jobs: Jobs, ends: Ends
) -> None:
    job = ends.job[0]
    pop(ends, state.ending)
    state.ending -= 1
    jobs.state[job], jobs.ended[job] = SUCCEEDED, state.now
    release(nodes, classes, jobs.request_class[job], jobs, job)
    state.allocated_milli -= _milli(classes, jobs.request_class[job])
    state.running -= 1
    state.finished += 1
    state.events += 1
    if rules.keeps:
        for class_ in range(len(classes.first)):
            if classes.closed[class_] and fits(nodes, jobs.node[job], classes, class_):
                classes.closed[class_] = False


@compiled
def _milli(classes: RequestClasses, class_: int) -> int:
    milli: int = classes.share[class_] or classes.gpus[class_] * WHOLE_GPU
    return milli


@compiled
def _sample(state: State, rules: Rules, samples: Samples) -> None:
    due = state.next_sample <= state.now
    if due:
        state.next_sample = state.now + rules.sample_every
    elif state.arrived_milli < state.next_demand:
        return
    if rules.demand_step < np.inf:
        state.next_demand = (state.arrived_milli // rules.demand_step + 1) * rules.demand_step
    at = state.samples
    if at and samples.time[at - 1] == state.now:
        at -= 1
    samples.time[at], samples.arrived[at] = state.now, state.arrived_milli
    samples.allocated[at] = state.allocated_milli
    samples.queued[at], samples.running[at] = state.queued, state.running
    state.samples = at + 1
