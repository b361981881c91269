# SPDX-License-Identifier: Apache-2.0
"""The engine as one loop: engine/simulator.py for `drop` and `fifo-skip`.

Each instant takes all ends, all arrivals, then the jobs that can start, then a sample. The loop
returns when the policy is due to be informed, in the middle of an instant, and resumes there.
"""

import numpy as np

from gpupack_core import WHOLE_GPU
from gpupack_simulator.compiled.ends import pop, push
from gpupack_simulator.compiled.holdings import best_row, give_back, has_room, take
from gpupack_simulator.compiled.loops import compiled
from gpupack_simulator.compiled.tables import (
    DROPPED,
    NOBODY,
    RUNS,
    SUCCEEDED,
    WAITS,
    Ends,
    Jobs,
    Lanes,
    Nodes,
    Prices,
    Rules,
    Samples,
    State,
)


@compiled
def advance(
    states: State,
    rules: Rules,
    nodes: Nodes,
    lanes: Lanes,
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
                _finish(state, rules, nodes, lanes, jobs, ends)
        while state.arrived < number and jobs.arrival[state.arrived] <= state.now:
            _arrive(state, rules, lanes, jobs)
            if state.arrived == state.due:
                state.within = 1
                return False
        state.within = 0
        _serve(state, rules, nodes, lanes, jobs, ends, prices)
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
def _arrive(state: State, rules: Rules, lanes: Lanes, jobs: Jobs) -> None:
    job = state.arrived
    lane = jobs.lane[job]
    jobs.finished_before[job] = state.finished
    state.arrived += 1
    state.events += 1
    state.arrived_milli += _milli(lanes, lane)
    if rules.keeps and lanes.never[lane]:
        jobs.state[job], jobs.ended[job] = DROPPED, state.now
        return
    jobs.state[job], jobs.behind[job] = WAITS, NOBODY
    if lanes.first[lane] == NOBODY:
        lanes.first[lane] = job
    else:
        jobs.behind[lanes.last[lane]] = job
    lanes.last[lane] = job
    state.queued += 1


@compiled
def _serve(
    state: State,
    rules: Rules,
    nodes: Nodes,
    lanes: Lanes,
    jobs: Jobs,
    ends: Ends,
    prices: Prices,
) -> None:
    """Start jobs by arrival and skip those that do not fit; drop them if jobs may not wait."""
    while state.queued:
        job = NOBODY
        for lane in range(len(lanes.first)):
            first = lanes.first[lane]
            if first != NOBODY and not lanes.closed[lane] and (job == NOBODY or first < job):
                job = first
        if job == NOBODY:
            return
        lane = jobs.lane[job]
        row = best_row(nodes, lanes, lane, prices)
        if row != NOBODY:
            _leave_queue(state, lanes, jobs, lane)
            take(nodes, row, lanes, lane, jobs, job, prices)
            _start(state, lanes, jobs, ends, job)
        elif rules.keeps:
            lanes.closed[lane] = True
        else:
            _leave_queue(state, lanes, jobs, lane)
            jobs.state[job], jobs.ended[job] = DROPPED, state.now


@compiled
def _leave_queue(state: State, lanes: Lanes, jobs: Jobs, lane: int) -> None:
    lanes.first[lane] = jobs.behind[lanes.first[lane]]
    state.queued -= 1


@compiled
def _start(state: State, lanes: Lanes, jobs: Jobs, ends: Ends, job: int) -> None:
    jobs.state[job], jobs.started[job] = RUNS, state.now
    state.allocated_milli += _milli(lanes, jobs.lane[job])
    state.running += 1
    state.started += 1
    if state.now + jobs.duration[job] < np.inf:
        push(ends, state.ending, state.now + jobs.duration[job], state.started, job)
        state.ending += 1


@compiled
def _finish(state: State, rules: Rules, nodes: Nodes, lanes: Lanes, jobs: Jobs, ends: Ends) -> None:
    job = ends.job[0]
    pop(ends, state.ending)
    state.ending -= 1
    jobs.state[job], jobs.ended[job] = SUCCEEDED, state.now
    give_back(nodes, lanes, jobs.lane[job], jobs, job)
    state.allocated_milli -= _milli(lanes, jobs.lane[job])
    state.running -= 1
    state.finished += 1
    state.events += 1
    if rules.keeps:
        for lane in range(len(lanes.first)):
            if lanes.closed[lane] and has_room(nodes, jobs.node[job], lanes, lane):
                lanes.closed[lane] = False


@compiled
def _milli(lanes: Lanes, lane: int) -> int:
    milli: int = lanes.share[lane] or lanes.gpus[lane] * WHOLE_GPU
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
