# SPDX-License-Identifier: Apache-2.0
"""The reader of the agents' metrics in a process, and the watch of their addresses."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpupack_apiserver.readings.agent_pods import SELECTOR, AgentPods
from gpupack_apiserver.readings.agent_poller import AgentPoller
from gpupack_apiserver.settings import ReadingSettings
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import PODS
from gpupack_placement import Cluster


class ReadingParts(NamedTuple):
    """The reader with its watch; by default there is neither.

    Answers do not depend on `reflectors`: without them answers are as fresh as ever.
    """

    poller: AgentPoller | None = None
    reflectors: Mapping[str, Reflector[Any]] = {}


def build_readings(settings: ReadingSettings | None, api: Api, cluster: Cluster) -> ReadingParts:
    """Return a reader of the agents on a cluster's nodes."""
    if settings is None:
        return ReadingParts()
    pods = AgentPods()
    watch = Reflector(api, PODS, pods, namespace=settings.namespace, selectors=SELECTOR)
    poller = AgentPoller(pods, lambda: [node.name for node in cluster.nodes()], settings)
    return ReadingParts(poller, {"agents": watch})
