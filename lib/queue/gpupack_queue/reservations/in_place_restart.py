# SPDX-License-Identifier: Apache-2.0
"""The check that only the rest of a job's last attempt holds the job's reserved places.

A job that restarts on its own GPUs can become pending before its last processes have ended: two
components see the end of a pod through two watches, and a node may list the pod as a holder for
longer.
"""

from gpupack_placement.cluster import Cluster
from gpupack_queue.job import RunningJob
from gpupack_queue.running.running_jobs import RunningJobs
from gpupack_queue.state.reservation import Reservation, is_free


def is_held_by_last_attempt(
    cluster: Cluster, reservation: Reservation, running: RunningJobs
) -> bool:
    """Tell whether the job fits there as soon as its tenant's other holders of these GPUs end.

    The cluster is one without the reservation, in which the job does not fit there now.
    """
    if not reservation.in_place:
        return False
    emptied = cluster.overlay()
    for one in running.of_tenant(reservation.job.tenant):
        if _overlaps(one, reservation):
            for placement in one.placements:
                emptied.assume_free(placement)
    return is_free(emptied, reservation.job, reservation.placements)


def _overlaps(one: RunningJob, reservation: Reservation) -> bool:
    kept = {grant.uuid for place in reservation.placements for grant in place.devices}
    return any(grant.uuid in kept for place in one.placements for grant in place.devices)
