# SPDX-License-Identifier: Apache-2.0
"""Times from a pod's object: when it got its GPUs, and when its containers ended.

They come from other machines' clocks: the API server's for the binding, the kubelet's for the end.
A kubelet whose clock is ahead reports an end in the future; `now` is the latest accepted time.
"""

from gpupack_kubeclient import objects


def bound_at(pod: objects.Pod, now: float) -> float | None:
    """Return when the Binding was written; None: not yet."""
    if not pod.spec.node_name:
        return None
    times = (
        *(
            condition.last_transition_time
            for condition in pod.status.conditions
            if condition.type == "PodScheduled" and condition.status == "True"
        ),
        pod.status.start_time,
        pod.metadata.creation_timestamp,
    )
    first = next((moment.timestamp() for moment in times if moment is not None), now)
    return min(first, now)


def ended_at(pod: objects.Pod, now: float) -> float | None:
    """Return when its last container ended; None: it has not ended, as far as the kubelet reported.

    For a pod that was refused, or given up with its node, the conditions give the time.
    """
    if not pod.finished or pod.status.shows_running:
        return None
    states = (
        each.state.terminated
        for each in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )
    ends = [state.finished_at.timestamp() for state in states if state and state.finished_at]
    if not ends:
        conditions = (
            each for each in pod.status.conditions if each.type in {"Ready", "DisruptionTarget"}
        )
        ends = [
            each.last_transition_time.timestamp()
            for each in conditions
            if each.last_transition_time
        ]
    return min(max(ends, default=now), now)
