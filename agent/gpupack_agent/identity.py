# SPDX-License-Identifier: Apache-2.0
"""The search for the container that a PreStartContainer call is for.

The call contains only IDs of device tokens. The container is the one whose device tokens, as the
kubelet lists them, are exactly these. The tokens of a pod are cached once those of all its
containers are listed, because containers keep them for life. But the result is always checked again
before it is used, for two reasons:

* After a forced deletion the kubelet hands the same tokens out again at once, while the watch may
  still show the old pod, perhaps with the same name. So the agent queries the kubelet again for
  this one pod (PodResources has no UIDs) and the API server for the UID of that name.
* The kubelet can hand one token out twice (kubernetes#137534). Then two containers match, and
  neither may start: the agent cannot tell which one this call is for.

The tokens of all candidates are read before one is chosen, which makes the second case visible.
"""

import asyncio
import dataclasses
from collections.abc import Collection, Mapping

from gpupack_agent.errors import ContainerUnidentified
from gpupack_agent.node_pod import NODE_PODS
from gpupack_agent.podresources import PodResources
from gpupack_agent.pods import PodStore, PodView, Start, view
from gpupack_kubeclient import client
from gpupack_kubeclient.errors import KubeError, Refused


class ContainerFinder:
    """The search for containers by their device tokens."""

    def __init__(self, pods: PodStore, kubelet: PodResources, api: client.Api) -> None:
        self._pods = pods
        self._kubelet = kubelet
        self._api = api
        self._known: dict[tuple[str, str], Mapping[str, frozenset[str]]] = {}
        """Device tokens by container, for a pod's UID and a resource."""
        self._query_lock = asyncio.Lock()

    async def find(self, resource: str, tokens: frozenset[str]) -> Start:
        """Find the container with exactly these device tokens; its pod is as the watch shows it.

        Raises:
            ContainerUnidentified: no container, or several, have them.
            KubeletUnavailable, KubeletTooOld: the kubelet could not be queried.
        """
        candidates = self._pods.requesting(resource, len(tokens))
        async with self._query_lock:
            await self._read_tokens(resource, candidates)
        matching = self._matching_starts(resource, tokens, candidates)
        if len(matching) > 1:
            self._forget(resource, [start.pod for start in matching])
        if len(matching) != 1:
            raise _unidentified(resource, tokens, matching, candidates)
        return matching[0]

    async def confirm(self, start: Start) -> Start:
        """Check with kubelet and API server that the start is of this container, and read its pod.

        Raises:
            ContainerUnidentified: it is not, or the API server could not be queried.
            KubeletUnavailable, KubeletTooOld: the kubelet could not be queried.
        """
        pod, tokens = start.pod, start.tokens
        listed = await self._kubelet.tokens(pod.namespace, pod.name, start.resource)
        if _containers_with(listed, tokens) != [start.container]:
            self._forget(start.resource, [pod])
            raise ContainerUnidentified(
                f"the kubelet no longer lists {_format_tokens(tokens)} for the same container",
                pods=(pod.title,),
            )
        try:
            current = view(await self._api.get(NODE_PODS, pod.name, namespace=pod.namespace))
        except KubeError as error:
            raise ContainerUnidentified(
                f"cannot check which pod has {_format_tokens(tokens)}: {_describe_error(error)}",
                pods=(pod.title,),
            ) from error
        if current.uid != pod.uid:
            raise ContainerUnidentified(
                "another pod of the same name replaced the pod, and the watch does not show it yet",
                pods=(f"{pod.title} (uid {pod.uid}, now {current.uid})",),
            )
        return dataclasses.replace(start, pod=current)

    def retain(self, uids: Collection[str]) -> None:
        """Forget pods that are gone."""
        self._known = {key: ids for key, ids in self._known.items() if key[0] in uids}

    async def _read_tokens(self, resource: str, candidates: list[PodView]) -> None:
        """Read the device tokens of pods of which not all are known.

        The kubelet hands them out container by container, and may not have finished.
        """
        for pod in candidates:
            known = self._known.get((pod.uid, resource), {})
            if any(
                request.container not in known
                for request in pod.requests
                if request.resource == resource
            ):
                listed = await self._kubelet.tokens(pod.namespace, pod.name, resource)
                if listed:
                    self._known[pod.uid, resource] = listed

    def _matching_starts(
        self, resource: str, tokens: frozenset[str], candidates: list[PodView]
    ) -> list[Start]:
        return [
            Start(pod, container, resource, tokens)
            for pod in candidates
            for container in _containers_with(self._known.get((pod.uid, resource), {}), tokens)
        ]

    def _forget(self, resource: str, pods: list[PodView]) -> None:
        for pod in pods:
            self._known.pop((pod.uid, resource), None)


def _containers_with(listed: Mapping[str, frozenset[str]], tokens: frozenset[str]) -> list[str]:
    return [container for container, held in listed.items() if held == tokens]


def _unidentified(
    resource: str, tokens: frozenset[str], matching: list[Start], candidates: list[PodView]
) -> ContainerUnidentified:
    """Build the error; its text names no pod, because the call's pod is not known."""
    if matching:
        return ContainerUnidentified(
            f"the kubelet gave {_format_tokens(tokens)} to {len(matching)} containers; delete this "
            "pod, or the others, which the agent's log names",
            pods=tuple(sorted({start.pod.title for start in matching})),
        )
    pods = tuple(sorted(pod.title for pod in candidates))
    return ContainerUnidentified(
        f"no known pod of this node has {_format_tokens(tokens)} of {resource} ({len(pods)} pods "
        f"request {len(tokens)}); plain init containers cannot have devices",
        pods=pods,
    )


def _describe_error(error: KubeError) -> str:
    """Describe an error without its text and path, which name a pod."""
    if isinstance(error, Refused):
        return f"the API server answers {error.status}"
    return "the API server does not answer"


def _format_tokens(tokens: frozenset[str]) -> str:
    return f"device tokens {','.join(sorted(tokens))}"
