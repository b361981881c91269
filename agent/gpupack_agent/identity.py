# SPDX-License-Identifier: Apache-2.0
"""Which pod a PreStartContainer call is for.

The call carries ticket ids and nothing else. The pod is the one whose tickets, as the kubelet lists
them, are exactly these. What was learned of a pod is kept, since a pod keeps its tickets for life;
but the answer is always checked anew before it is used, for two reasons:

* After a force delete the kubelet hands the same tickets out again at once, while our watch may
  still show the old pod, perhaps of the same name. So the kubelet is asked again for this one pod
  (PodResources knows no UIDs) and the API server for the UID behind the name.
* The kubelet can hand one ticket out twice (kubernetes#137534). Then two pods fit, and neither may
  start: we could not tell which one this call is for.

All candidates are asked before one is chosen, which is what makes the second case visible.
"""

import asyncio
from collections.abc import Collection

from gpupack_agent.errors import Unidentified
from gpupack_agent.podresources import PodResources
from gpupack_agent.pods import PodStore, PodView, view
from gpupack_kube import client, resources
from gpupack_kube.errors import KubeError, Refused


class Identities:
    """Finds pods by their tickets."""

    def __init__(self, pods: PodStore, kubelet: PodResources, api: client.Api) -> None:
        self._pods = pods
        self._kubelet = kubelet
        self._api = api
        self._known: dict[tuple[str, str], frozenset[frozenset[str]]] = {}
        self._asking = asyncio.Lock()

    async def find(self, resource: str, tickets: frozenset[str]) -> PodView:
        """Find the pod that holds exactly these tickets, as our watch shows it.

        Raises:
            Unidentified: none or several fit.
            KubeletUnavailable, KubeletTooOld: the kubelet could not be asked.
        """
        candidates = self._pods.asking(resource, len(tickets))
        async with self._asking:
            await self._learn(resource, candidates)
        fitting = self._fitting(resource, tickets, candidates)
        if len(fitting) > 1:
            self._forget(resource, fitting)
        if len(fitting) != 1:
            raise _unidentified(resource, tickets, fitting, candidates)
        return fitting[0]

    async def confirm(self, pod: PodView, resource: str, tickets: frozenset[str]) -> PodView:
        """Check with kubelet and API server that `pod` is still the one, and read it as it is now.

        Raises:
            Unidentified: it is not, or the API server could not be asked.
            KubeletUnavailable, KubeletTooOld: the kubelet could not be asked.
        """
        listed = await self._kubelet.tickets(pod.namespace, pod.name, resource)
        if tickets not in listed.values():
            self._forget(resource, [pod])
            raise Unidentified(
                f"the kubelet no longer lists {_set(tickets)} for the pod that had them",
                pods=(pod.title,),
            )
        try:
            current = view(await self._api.get(resources.PODS, pod.name, namespace=pod.namespace))
        except KubeError as error:
            raise Unidentified(
                f"cannot check which pod has {_set(tickets)}: {_kind_of(error)}",
                pods=(pod.title,),
            ) from error
        if current.uid != pod.uid:
            raise Unidentified(
                "the pod was replaced by another of its name, and the watch lags",
                pods=(f"{pod.title} (uid {pod.uid}, now {current.uid})",),
            )
        return current

    def retain(self, uids: Collection[str]) -> None:
        """Forget pods that are gone."""
        self._known = {key: ids for key, ids in self._known.items() if key[0] in uids}

    async def _learn(self, resource: str, candidates: list[PodView]) -> None:
        """Ask for the tickets of pods whose tickets are not known; they may have none yet."""
        for pod in candidates:
            if (pod.uid, resource) not in self._known:
                listed = await self._kubelet.tickets(pod.namespace, pod.name, resource)
                if listed:
                    self._known[pod.uid, resource] = frozenset(listed.values())

    def _fitting(
        self, resource: str, tickets: frozenset[str], candidates: list[PodView]
    ) -> list[PodView]:
        return [pod for pod in candidates if tickets in self._known.get((pod.uid, resource), ())]

    def _forget(self, resource: str, pods: list[PodView]) -> None:
        for pod in pods:
            self._known.pop((pod.uid, resource), None)


def _unidentified(
    resource: str, tickets: frozenset[str], fitting: list[PodView], candidates: list[PodView]
) -> Unidentified:
    """Nobody knows whose call it is: no pod is named to whoever reads the text."""
    pods = tuple(sorted(pod.title for pod in fitting or candidates))
    if fitting:
        return Unidentified(
            f"the kubelet handed {_set(tickets)} to {len(pods)} pods; delete this one, or the "
            "others, which the agent's log names",
            pods=pods,
        )
    return Unidentified(
        f"no pod of this node is known to hold {_set(tickets)} of {resource} ({len(pods)} pods ask "
        f"for {len(tickets)}); plain init containers cannot have devices",
        pods=pods,
    )


def _kind_of(error: KubeError) -> str:
    """What the API server says, and the path of the request, name a pod."""
    if isinstance(error, Refused):
        return f"the API server answers {error.status}"
    return "the API server does not answer"


def _set(tickets: frozenset[str]) -> str:
    return f"tickets {','.join(sorted(tickets))}"
