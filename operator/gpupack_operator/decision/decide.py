# SPDX-License-Identifier: Apache-2.0
"""Life of a GPUJob, as a function from what was observed to what to do.

| the GPUJob …                          | is judged by        |
|---|---|
| is being deleted                      | no module: garbage collection removes what it owns |
| has ended                             | `finished.py`: time to live, stopping what still runs |
| has an attempt that has not ended     | `running.py`: continue, restart, succeed, fail |
| has none, suspended or not            | `waiting.py`: clean up, wait, plan, admit |

A job that lacks GPUs may also have requested nodes: `provisioning.py`. The condition about slow
communication follows from the results written in this pass: `fast_communication.py`.

A pass may have several steps: where an action has an answer (a plan, a refused creation), decide is
called again with the answer in the observation. Everything else follows from the API objects, so an
operator that restarts at any point continues from there.
"""

import dataclasses

from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_operator.decision import (
    attempts,
    fast_communication,
    finished,
    gpus,
    provisioning,
    role_status,
    running,
    times,
    waiting,
)
from gpupack_operator.decision.conditions import Writer
from gpupack_operator.decision.model import Decision, Observation


def decide(observation: Observation) -> Decision:
    """Decide what to do about a GPUJob now."""
    job = observation.job
    if job.metadata.deletion_timestamp is not None:
        return Decision(status=job.status)
    write = Writer(now=observation.now, generation=job.metadata.generation)
    status = write.first(_with_derived_fields(observation))
    decision = provisioning.with_node_request(
        observation, _decide_by_state(observation, status, write), write
    )
    status = fast_communication.with_condition(observation, decision.status, write)
    status = role_status.with_roles(observation, status)
    return dataclasses.replace(decision, status=status)


def _decide_by_state(observation: Observation, status: GpuJobStatus, write: Writer) -> Decision:
    if status.finished:
        return finished.decide(observation, status)
    attempt = attempts.current(status)
    if attempt:
        return running.decide(observation, status, attempt, write)
    return waiting.decide(observation, status, write)


def _with_derived_fields(observation: Observation) -> GpuJobStatus:
    spec, before = observation.job.spec, observation.job.status
    width = before.width
    return structs.replace(
        before,
        observed_generation=observation.job.metadata.generation,
        workers=spec.workers,
        gpus=gpus.column(spec, workers=width.workers if width else None),
        run_limit=before.run_limit
        if before.finished
        else times.run_limit(spec, observation.run_limit),
    )
