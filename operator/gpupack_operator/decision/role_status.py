# SPDX-License-Identifier: Apache-2.0
"""State of each role in the status, computed from the state of the job.

The workers of a large gang start one after another, and each of them would cause a write. So the
number of running workers is written in steps of a tenth.
"""

from collections.abc import Collection
from typing import Final

from msgspec import structs

from gpupack_crds.gpujob_status import GpuJobStatus, RoleStatus
from gpupack_crds.placement import by_worker
from gpupack_operator.decision import attempts, gpus
from gpupack_operator.decision.model import Observation
from gpupack_operator.decision.view import view
from gpupack_operator.decision.workers import by_index

STEPS: Final = 10
"""Number of different counts of running workers."""


def with_roles(observation: Observation, status: GpuJobStatus) -> GpuJobStatus:
    """Return the status with the state of each role; unchanged for a job without roles."""
    spec = observation.job.spec
    if not spec.roles:
        return status
    running, succeeded = _counted(observation, status)
    node_of = {each.worker: each.node for each in by_worker(status.placement)}
    before = {role.name: role for role in status.roles}
    return structs.replace(
        status,
        roles=tuple(
            structs.replace(
                before.get(role.name) or RoleStatus(name=role.name),
                workers=role.workers,
                first=indices.start,
                running=_in_steps(_number_in(running, indices), role.workers),
                succeeded=_number_in(succeeded, indices),
                gpus=gpus.of_role(role),
                nodes=attempts.shorten_names(
                    tuple(dict.fromkeys(node_of[i] for i in indices if i in node_of))
                ),
            )
            for role, indices in spec.role_indices
        ),
    )


def _counted(
    observation: Observation, status: GpuJobStatus
) -> tuple[Collection[int], Collection[int]]:
    """Return the indices of the workers that run, and of those that count as succeeded."""
    attempt = attempts.current(status)
    if attempt is None:
        workers_of_job = range(observation.job.spec.workers)
        return (), workers_of_job if status.phase == "Succeeded" else ()
    seen = view(observation, status, attempt)
    workers = by_index(seen.workers).items()
    started = {index for index, each in workers if each.started}
    # An end counts once it is recorded, at most every few seconds (ended_workers.py).
    return started - seen.ended.indices, seen.ended.indices


def _number_in(found: Collection[int], indices: range) -> int:
    return sum(1 for index in found if index in indices)


def _in_steps(number: int, workers: int) -> int:
    """Return the number rounded down to a tenth of the workers, unless it is all of them."""
    step = max(-(-workers // STEPS), 1)
    return number if number == workers else number // step * step
