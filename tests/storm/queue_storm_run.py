# SPDX-License-Identifier: Apache-2.0
"""One storm of the queue from its first object to the last verdict, at any size."""

import contextlib
import dataclasses
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import queue_tenants
import simulated_gpus
from background import running
from chaos import killing
from growing_pool import Pool, WithGrown
from harness import Kube, StillWaiting, wait_for
from manifests import Judged
from parts import Ledger
from pod_rules import WHOLE
from queue_judge import End, Judge, Terms, unexpected_ends
from queue_storms import Meddling, QueueStorm, drawn
from queue_watcher import Watcher, watching
from storm_views import SeenJob
from storms import Server
from truth_fleet import Shape
from upkeep import Upkeep

from gpupack_devcluster.driver import ClusterDriver

Ends = Mapping[str, End | None]
"""How each job is to end, by NAMESPACE/NAME; None: it is deleted."""

SLACK_SECONDS = 90.0
"""The additional delay with which an operator ends a gang after its restart or the API server's."""
SCALE_EVERY_SECONDS = (1.0, 4.0)
MEDDLE_EVERY_SECONDS = (0.5, 2.0)
OUTAGE_EVERY_SECONDS = (5.0, 15.0)
UPKEEP_EVERY_SECONDS = (1.0, 3.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a storm is, and what is killed in it."""

    seed: int
    jobs: int
    servers: int
    parts: Sequence[str]
    rounds: int
    upkeep: int
    """So many times a node, or a GPU, is taken out of service."""
    kill_every_seconds: tuple[float, float]
    patience_seconds: float

    @property
    def kills(self) -> int:
        """Of all parts together."""
        return self.rounds * len(self.parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What a storm was like."""

    ends: dict[str, int]
    outcomes: dict[str, int]
    killed: dict[str, int]
    outages: int
    upkeep: dict[str, int]
    nodes_that_came: int
    moves: int
    stopped_for_maintenance: int
    seconds: dict[str, float]
    preemptions: int
    consolidations: int
    shrinks: int
    unseen_preemptions: int
    meddled: int
    scaled: int
    events: int
    lists: int

    def __str__(self) -> str:
        """One line."""
        return json.dumps(vars(self))


@dataclasses.dataclass
class QueueStormRun:
    """A storm on the cluster."""

    cluster: ClusterDriver
    kube: Kube
    make: Callable[[str], Kube]
    judged: Judged
    ledger: Ledger
    nodes: Mapping[str, Shape]
    """The simulated ones."""
    pool: Pool
    """Of simulated ones that come and go."""

    def __call__(self, scale: Scale) -> Report:
        """Let it loose; fails where something was wrong at any time, or ends otherwise."""
        storm = drawn(self.judged, jobs=scale.jobs, servers=scale.servers, seed=scale.seed)
        with queue_tenants.tenants(self.kube, self.make) as tenants:
            namespaces = {name: kube.namespace for name, kube in tenants.items()}
            ends = storm.ends(tenants)
            models = (queue_tenants.H100, queue_tenants.A100, queue_tenants.T4)
            terms = Terms(
                gpus=WithGrown(
                    simulated_gpus.inventory(self.kube.gpunodes(), models), queue_tenants.A100
                ),
                limits=queue_tenants.limits(namespaces),
                deletable=frozenset(key for key, end in ends.items() if end is None),
                slack_seconds=SLACK_SECONDS,
            )
            judge = Judge(terms)
            priorities = queue_tenants.PRIORITIES
            with watching(self.cluster.kubeconfig, judge, priorities) as watcher:
                try:
                    return self._storm(scale, storm, tenants, watcher, ends)
                except BaseException as error:
                    error.add_note(f"the watcher saw: {list(judge.violations)}")
                    error.add_note(f"GPUs are held by: {self._described(watcher)}")
                    raise

    def _storm(
        self,
        scale: Scale,
        storm: QueueStorm,
        tenants: Mapping[str, Kube],
        watcher: Watcher,
        ends: Ends,
    ) -> Report:
        begun = time.monotonic()
        meddling = Meddling(storm, tenants, scale.seed)
        upkeep = Upkeep(self.kube, watcher, list(self.nodes), times=scale.upkeep, seed=scale.seed)
        storm.serve(tenants)
        upkept = running(upkeep.act, _pauses(scale.seed, UPKEEP_EVERY_SECONDS))
        with self._killing(scale, watcher) as killed, upkept:
            with (
                running(meddling.act, _pauses(scale.seed, MEDDLE_EVERY_SECONDS)),
                self._outages(scale, watcher) as outages,
                tides(tenants, storm.servers, scale.seed) as scaled,
            ):
                storm.submit(tenants)
                wait_for(
                    lambda: len(killed()) == scale.kills,
                    seconds=scale.patience_seconds,
                    what=f"{scale.kills} kills",
                )
            calm = time.monotonic()
            meddling.finish()
            set_scale(tenants, storm.servers, to_most=False)
            wait_for(lambda: upkeep.is_over, seconds=scale.patience_seconds, what="no more upkeep")
            self._all_ended(scale, watcher, ends)
            finished = time.monotonic()
        self._all_free(watcher)
        self.pool.wait_given_back(list(tenants.values()))
        self._all_served(scale, storm, tenants, watcher)
        wrong = watcher.look(lambda judge: list(judge.violations))
        assert wrong == [], json.dumps(wrong, indent=1)
        jobs = [job for job in watcher.look(_jobs) if job.key in ends]
        return Report(
            ends=Counter(f"{job.phase} {job.reason}" for job in jobs),
            outcomes=Counter(each.outcome for job in jobs for each in job.attempts),
            killed=Counter(killed()),
            outages=outages(),
            upkeep=upkeep.done,
            nodes_that_came=len(self.pool.came),
            moves=watcher.look(lambda judge: judge.service.moves),
            stopped_for_maintenance=watcher.look(lambda judge: judge.service.stops),
            seconds={
                "kills": round(calm - begun),
                "all_ended": round(finished - begun),
                "all": round(time.monotonic() - begun),
            },
            preemptions=watcher.look(lambda judge: judge.preemptions.count),
            consolidations=watcher.look(lambda judge: judge.preemptions.consolidations),
            shrinks=watcher.look(lambda judge: judge.preemptions.shrinks),
            unseen_preemptions=watcher.look(lambda judge: judge.preemptions.unseen),
            meddled=meddling.done,
            scaled=scaled(),
            events=watcher.events,
            lists=watcher.lists,
        )

    @contextlib.contextmanager
    def _killing(self, scale: Scale, watcher: Watcher) -> Iterator[Callable[[], list[str]]]:
        """Kill parts and nodes, and report power losses to the watcher."""
        cluster = PowerReporting(self.cluster, watcher)
        with killing(
            cluster,
            seed=scale.seed,
            every_seconds=scale.kill_every_seconds,
            parts=scale.parts,
            rounds=scale.rounds,
            when=self.kube.answers,
        ) as killed:
            yield killed

    @contextlib.contextmanager
    def _outages(self, scale: Scale, watcher: Watcher) -> Iterator[Callable[[], int]]:
        """Simulated nodes lose power; yields a look at how many did."""
        chance = random.Random(f"{scale.seed}:power")
        cut: list[str] = []

        def cut_some() -> None:
            nodes, seconds = simulated_gpus.draw_outage(chance, self.nodes)
            for node in nodes:
                if simulated_gpus.cut_power(self.kube, node, seconds):
                    watcher.look(lambda judge, node=node: judge.lost_power(node, time.time()))
                    cut.append(node)

        with running(cut_some, _pauses(scale.seed, OUTAGE_EVERY_SECONDS)):
            yield lambda: len(cut)

    def _all_ended(self, scale: Scale, watcher: Watcher, ends: Ends) -> None:
        """All that is to end has, and all that is to be deleted is gone; as their specs say."""

        def ended() -> bool:
            jobs = {job.key: job for job in watcher.look(_jobs)}
            return all(
                key not in jobs if end is None else key in jobs and jobs[key].has_ended
                for key, end in ends.items()
            )

        wait_for(ended, seconds=scale.patience_seconds, what="all jobs ended", every_seconds=1.0)
        otherwise = unexpected_ends(watcher.look(_jobs), ends)
        assert otherwise == [], json.dumps(otherwise, indent=1)

    def _described(self, watcher: Watcher) -> list[str]:
        """Who holds GPUs, with what the API server says of the first of them."""
        holders = watcher.look(lambda judge: judge.gpus.holders)
        shown = ("--output=jsonpath={.metadata} {.status.phase} {.status.reason}",)
        described = [
            self.kube.kubectl("get", "pod", "--namespace", *each.split(" ")[0].split("/"), *shown)
            for each in holders[:3]
        ]
        return [*holders, *(f"{each.stdout}{each.stderr}" for each in described)]

    def _all_free(self, watcher: Watcher) -> None:
        """By the pods and by the ledger."""
        wait_for(
            lambda: not watcher.look(lambda judge: judge.gpus.held),
            seconds=120,
            what="no pod holds a GPU",
        )
        self.ledger.wait_empty()

    def _all_served(
        self, scale: Scale, storm: QueueStorm, tenants: Mapping[str, Kube], watcher: Watcher
    ) -> None:
        """All servers at their largest; the ledger holds what their pods do, and no more."""
        set_scale(tenants, storm.servers, to_most=True)
        for tenant, server in storm.servers:
            tenants[tenant].wait_scale("deployment", server.name, seconds=scale.patience_seconds)

        figures = ("", "")

        def agree() -> bool:
            nonlocal figures
            percents = watcher.look(lambda judge: list(judge.gpus.held.values()))
            full = sum(percent == WHOLE for percent in percents)
            by_ledger = [
                int(self.ledger.figure("gpupack_extender_devices", state=state))
                for state in ("held", "shared")
            ]
            figures = (f"by pods {[full, len(percents) - full]}", f"by ledger {by_ledger}")
            return by_ledger == [full, len(percents) - full]

        try:
            wait_for(agree, seconds=60, what="ledger and pods agree")
        except StillWaiting as error:
            error.add_note(f"GPUs with nothing left and with something left: {' '.join(figures)}")
            raise
        assert self.ledger.figure("gpupack_extender_contradictions_total") == 0


def _jobs(judge: Judge) -> list[SeenJob]:
    return list(judge.jobs.values())


def _pauses(seed: int, seconds: tuple[float, float]) -> Callable[[], float]:
    chance = random.Random(seed)
    return lambda: chance.uniform(*seconds)


@dataclasses.dataclass(frozen=True)
class PowerReporting:
    """A cluster that reports each power cut of a node to the watcher."""

    cluster: ClusterDriver
    watcher: Watcher

    def __getattr__(self, name: str) -> Any:
        """All else as it is."""
        return getattr(self.cluster, name)

    def power_off(self, node: str) -> None:
        """Cut it."""
        self.watcher.look(lambda judge: judge.lost_power(node, time.time()))
        self.cluster.power_off(node)


@contextlib.contextmanager
def tides(
    tenants: Mapping[str, Kube], servers: Sequence[tuple[str, Server]], seed: int
) -> Iterator[Callable[[], int]]:
    """Scale one server after the other, up or down; yields a look at how often."""
    chance = random.Random(f"{seed}:tide")
    scaled: list[str] = []

    def scale_one() -> None:
        tenant, server = chance.choice(servers)
        tenants[tenant].scale("deployment", server.name, chance.randint(0, server.most))
        scaled.append(server.name)

    with running(scale_one, lambda: chance.uniform(*SCALE_EVERY_SECONDS)):
        yield lambda: len(scaled)


def set_scale(
    tenants: Mapping[str, Kube], servers: Sequence[tuple[str, Server]], *, to_most: bool
) -> None:
    """All servers to their most, or to nothing."""
    for tenant, server in servers:
        tenants[tenant].scale("deployment", server.name, server.most if to_most else 0)
