# SPDX-License-Identifier: Apache-2.0
"""Parts that decide, and their inputs.

The other parts of the process act on them or report them.
"""

import asyncio
import dataclasses
import time
from typing import Any

from gpupack_crds.kinds import GPUCOHORTS, GPUNODES, GPUQUOTAS, GPURESERVATIONS
from gpupack_extender.leadership import Leadership
from gpupack_extender.queueing.gates import Gates
from gpupack_extender.readiness import Readiness
from gpupack_extender.settings import LeaderElection, Settings
from gpupack_extender.takeover import Takeover
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.clock import steady
from gpupack_kubeclient.objects import Lease
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import LEASES, NODES
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.placed_job import PLACED_JOBS
from gpupack_scheduler.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.published_forecast import PublishedForecast
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.queue_owner import QueueOwner
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores
from gpupack_scheduler.queueing.turns import Notifiers, Turns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The single instance of each part.

    Attributes:
        reflectors: watches of the API server's objects, by kind; `leader` watches the leader's
            Lease.
        leadership: whether this process leads.
        takeover: what it waits for when it begins to lead.
        readiness: whether it may decide now.
    """

    api: Api
    decisions: Decisions
    ledger: Ledger
    quotas: QuotaStores
    policies: Policies
    reflectors: dict[str, Reflector[Any]]
    leadership: Leadership
    takeover: Takeover
    readiness: Readiness
    turns: Turns
    gates: Gates
    owner: QueueOwner


def parts_of(settings: Settings, api: Api, leases: Api) -> Parts:
    """Create the parts that decide; a loop must run.

    Args:
        settings: the settings from the environment.
        api: the API server, for all objects but the Lease.
        leases: the API server, for the Lease: no other call uses its connections.
    """
    clock, decisions, election = time.monotonic, settings.decisions, settings.leader_election
    ledger = Ledger(
        clock,
        observed_resources=decisions.observed_resources,
        acceptance=decisions.acceptance,
        max_priority=decisions.max_priority,
    )
    quotas = QuotaStores()
    policies = Policies(
        decisions.policy, PublishedForecast(quotas), known=decisions.demand_forecast
    )
    sources = _reflectors(api, ledger, quotas)
    takeover = Takeover(
        sources.values(),
        awaits_plans=ledger.jobs.await_plans,
        clock=clock,
        settle_seconds=decisions.plan_hold_seconds,
        later=asyncio.get_running_loop().call_later,
    )
    leadership = Leadership(pod_name=election.pod_name, clock=clock, gained=takeover.begin)
    reflectors = {**sources, "leader": _leader_reflector(leases, leadership, election)}
    readiness = Readiness(
        watches=reflectors,
        leadership=leadership,
        takeover=takeover,
        stale_after_seconds=election.stale_after_seconds,
    )
    turns, gates = Turns(), Gates(api, ledger, leads=lambda: leadership.held)
    observed = ObservedQueue(ledger, policies, quotas, now=steady(api.clock), decisions=decisions)
    owner = QueueOwner(observed, policies, Notifiers(turns, gates))
    return Parts(
        api=api,
        decisions=decisions,
        ledger=ledger,
        quotas=quotas,
        policies=policies,
        reflectors=reflectors,
        leadership=leadership,
        takeover=takeover,
        readiness=readiness,
        turns=turns,
        gates=gates,
        owner=owner,
    )


def _reflectors(api: Api, ledger: Ledger, quotas: QuotaStores) -> dict[str, Reflector[Any]]:
    """Return the watches of the objects on which decisions depend."""
    return {
        "nodes": Reflector(api, NODES, ledger.nodes),
        "gpunodes": Reflector(api, GPUNODES, ledger.gpus),
        "gpujobs": Reflector(api, PLACED_JOBS, ledger.jobs),
        "gpuquotas": Reflector(api, GPUQUOTAS, quotas.quotas),
        "gpucohorts": Reflector(api, GPUCOHORTS, quotas.cohorts),
        "gpureservations": Reflector(api, GPURESERVATIONS, quotas.reservations),
        "pods": Reflector(api, WATCHED_PODS, ledger.pods),
    }


def _leader_reflector(
    api: Api, leadership: Leadership, election: LeaderElection
) -> Reflector[Lease]:
    lease = {"fieldSelector": f"metadata.name={election.leader_lease}"}
    return Reflector(api, LEASES, leadership, namespace=election.system_namespace, selectors=lease)
