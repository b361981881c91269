# SPDX-License-Identifier: Apache-2.0
"""Who asks the agents in a process, and the watch that tells where they are."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gpupack_core as core
from gpupack_api.readings.agent_pods import SELECTOR, AgentPods
from gpupack_api.readings.gauge import Gauge
from gpupack_api.settings import ReadingSettings
from gpupack_kube.client import Api
from gpupack_kube.reflector import Reflector
from gpupack_kube.resources import PODS


class Asking(NamedTuple):
    """Nobody asks by default.

    `reflectors` are none of those that answers depend on: without them these are as fresh as ever.
    """

    gauge: Gauge | None = None
    reflectors: Mapping[str, Reflector[Any]] = {}


def asking(settings: ReadingSettings | None, api: Api, cluster: core.Cluster) -> Asking:
    """Ask the agents of a cluster's nodes."""
    if settings is None:
        return Asking()
    pods = AgentPods()
    watch = Reflector(api, PODS, pods, namespace=settings.namespace, selectors=SELECTOR)
    gauge = Gauge(pods, lambda: [node.name for node in cluster.nodes()], settings)
    return Asking(gauge, {"agents": watch})
