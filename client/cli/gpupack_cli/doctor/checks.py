# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order of a manual diagnosis."""

from collections.abc import Callable, Iterator
from typing import Final

from gpupack_cli.doctor import (
    agentless,
    communication,
    installed,
    inventories,
    nodes,
    parts,
    pending_pods,
    renewals,
    secrets,
)
from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding

CHECKS: Final[tuple[Callable[[ClusterState], Iterator[Finding]], ...]] = (
    installed.kubernetes_version,
    installed.kinds,
    parts.parts,
    parts.pods,
    parts.kube_scheduler,
    parts.leaders,
    installed.versions,
    installed.admission,
    installed.webhooks,
    installed.priority_class,
    secrets.secrets,
    secrets.certificates,
    renewals.renewals,
    parts.metrics,
    parts.rest,
    parts.caller,
    nodes.reports,
    inventories.rejected,
    nodes.health,
    agentless.without_agent,
    pending_pods.wrong_scheduler,
    pending_pods.withheld_resources,
    nodes.quotas,
    communication.slow_gangs,
)


def findings(seen: ClusterState) -> list[Finding]:
    """Return the findings of all checks."""
    return [finding for check in CHECKS for finding in check(seen)]
