# SPDX-License-Identifier: Apache-2.0
"""Checks that memory and speed of all components stay within bounds during a tenant's attack.

    sudo PYTHONPATH=tests/e2e .dev/venv/bin/python benchmarks/hostile_memory.py --seconds 600

It runs on the cluster of `make cluster-up`. A tenant of one namespace does at the same time,
repeatedly:

* create pods of 1.2 MB of `<`, each of which Go's JSON writes as six bytes,
* create 170 pending pods for a million GPUs each, all with different CPU,
* create 40 pending pods with as many node selector terms as fit into a pod,
* hold 400 TLS connections open to the plan port, from each of two pods, and send forged
  tokens,

while another tenant's pods of one GPU are placed and deleted, one after the other. If admission
refuses so many letters, GPUs or terms, the largest admitted number is used. Each round creates the
pods under new names and deletes those of the round before. The processes that flood the port run at
the lowest CPU priority, because a tenant's pods usually run on other nodes.

Prints one line of JSON: p50 and p99 of filter from the leading extender's histogram, seconds from
the creation of a pod to its node and the number of pods without a node after a minute, and for each
container its maximum memory (VmHWM of its first process), its limit, and its restarts. Exits with 1
if one of gpupack's containers was restarted, and if the figures are not valid: an attack was never
admitted, no pod was placed, or no call of filter was counted.
"""

import argparse
import bisect
import collections
import contextlib
import json
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness import STATE, SYSTEM_NAMESPACE, Kube, stream, wait_for
from manifests import JUDGE_IMAGE
from parts import leader, ledger_reader, peak_mib, pods_of_part, restarts
from tenants import Tenant, settle

from gpupack_crds import names

HOSTILE, FRIENDLY = "hostile-memory", "friendly-tenant"
FLOODS, IDLE, WAITING, SELECTING = 2, 400, 170, 40
LETTERS, GPUS, TERMS = 1_200_000, 1 << 20, 30_000
"""Numbers that are tried first."""
ATTACKS = ("flood", "large", "gpus", "terms")
TIMEOUT_SECONDS = 60.0
ROUND = "round"
"""Label."""

Manifest = dict[str, Any]

FLOOD = f"""
import asyncio, contextlib, os, ssl
os.nice(19)
CONTEXT = ssl._create_unverified_context()
HOST = "gpupack-extender.{SYSTEM_NAMESPACE}.svc"
CALL = ("POST {names.PLAN_ROUTE.format(namespace=HOSTILE)} HTTP/1.1\\r\\nHost: x\\r\\n"
        "Content-Length: 0\\r\\n"
        "Authorization: Bearer forged-%d\\r\\n\\r\\n")
async def hold(number):
    while True:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            reader, writer = await asyncio.open_connection(HOST, 8443, ssl=CONTEXT)
            if number % 10 == 0:
                writer.write((CALL % number).encode())
            await asyncio.wait_for(reader.read(), 60)
            writer.close()
        await asyncio.sleep(1)
async def main():
    await asyncio.gather(*(hold(number) for number in range({IDLE})))
asyncio.run(main())
"""


def pod(name: str, *, limits: Manifest | None = None, **spec: Any) -> Manifest:
    """Return a pod; without `spec` it runs nothing."""
    container = {
        "name": "worker",
        "image": JUDGE_IMAGE,
        "command": ["sleep", "3600"],
        "resources": {"limits": limits or {}},
        **spec.pop("container", {}),
    }
    scheduler = {"schedulerName": names.SCHEDULER_NAME} if limits else {}
    grace = {"terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**scheduler, **grace, "containers": [container], **spec},
    }


def selecting(name: str, terms: int) -> Manifest:
    """Return a pod with so many selector terms that match no node."""
    term = {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * terms}
    }
    return pod(name, limits={names.GPU: "1"}, affinity={"nodeAffinity": required})


def large(name: str, letters: int) -> Manifest:
    """Return a pod whose only argument is so many `<`."""
    return pod(name, container={"args": ["<" * letters]})


def crowd(name: str, gpus: int, *, cpu: str = "1") -> Manifest:
    """Return a pod that requests so many GPUs."""
    return pod(name, limits={names.GPU: str(gpus), "cpu": cpu})


def in_round(number: int, manifest: Manifest) -> Manifest:
    """Return the manifest with the number of its round as a label."""
    labels = {"labels": {ROUND: str(number)}}
    return {**manifest, "metadata": {**manifest["metadata"], **labels}}


def largest(is_admitted: Callable[[int], bool], most: int) -> int:
    """Return the largest admitted count up to `most`; 0 if not even 1 is admitted."""
    if is_admitted(most):
        return most
    return bisect.bisect_left(range(1, most), x=True, key=lambda count: not is_admitted(count))


class Attacker:
    """Creates pods with a tenant's rights and counts the answers of admission."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.admitted: collections.Counter[str] = collections.Counter()
        self.refused: dict[str, str] = {}
        self.letters = largest(lambda count: self._may(large("tried", count)), LETTERS)
        self.gpus = largest(lambda count: self._may(crowd("tried", count)), GPUS)
        self.terms = largest(lambda count: self._may(selecting("tried", count)), TERMS)

    def create(self, what: str, manifest: Manifest) -> bool:
        """Create an object; return whether it was admitted."""
        error = self._send(manifest)
        if error:
            self.refused[what] = error.strip()[:200]
        else:
            self.admitted[what] += 1
        return not error

    def round(self, number: int) -> None:
        """Create everything under new names, then delete the pods of the round before."""
        self.create("large", in_round(number, large(f"large-{number}", self.letters)))
        cpus = range(1000 + number * WAITING, 1000 + (number + 1) * WAITING)
        waiting = [crowd(f"gpus-{cpu}", self.gpus, cpu=f"{cpu}m") for cpu in cpus]
        self._create_all("gpus", number, waiting)
        selects = [selecting(f"selects-{number}-{each}", self.terms) for each in range(SELECTING)]
        self._create_all("terms", number, selects)
        before = f"--selector={ROUND}={number - 1}"
        self.tenant.kubectl("delete", "pod", before, "--wait=false")

    def _create_all(self, what: str, number: int, manifests: list[Manifest]) -> None:
        text = stream(in_round(number, manifest) for manifest in manifests)
        done = self.tenant.kubectl("create", "-f", "-", stdin=text)
        self.admitted[what] += done.stdout.count(" created")
        if done.stderr:
            self.refused[what] = done.stderr.strip()[:200]

    def _may(self, manifest: Manifest) -> bool:
        return not self._send(manifest, query="?dryRun=All")

    def _send(self, manifest: Manifest, *, query: str = "") -> str:
        """Return the refusal, or "". Raw: kubectl's encoder would write each < in six bytes."""
        path = f"/api/v1/namespaces/{self.tenant.kube.namespace}/pods{query}"
        flags = ("create", "--raw", path, "-f", "-")
        done = self.tenant.kubectl(*flags, stdin=json.dumps(manifest))
        return (done.stderr or f"kubectl ended with {done.returncode}") if done.returncode else ""


@contextlib.contextmanager
def run_in_background(work: Callable[[int], None]) -> Iterator[None]:
    """Call `work` repeatedly in a thread, with the number of the call, until the context ends."""
    over = threading.Event()

    def run() -> None:
        number = 0
        while not over.is_set():
            work(number)
            number += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join(TIMEOUT_SECONDS)


def place_one(kube: Kube, number: int) -> float | None:
    """Return the seconds until a pod of one GPU has a node; None after TIMEOUT_SECONDS."""
    name = f"probe-{number}"
    began = time.monotonic()
    kube.insist("create", "-f", "-", stdin=json.dumps(pod(name, limits={names.GPU: "1"})))
    bound = "--for=condition=PodScheduled"
    waited = kube.kubectl("wait", f"pod/{name}", bound, f"--timeout={TIMEOUT_SECONDS:g}s")
    seconds = time.monotonic() - began
    kube.insist("delete", "pod", name, "--wait=false")
    return None if waited.returncode else seconds


def filter_buckets(text: str) -> dict[float, float]:
    """Return the number of filter calls by their upper bound in seconds."""
    found = re.findall(r'call_seconds_bucket{le="([^"]+)",verb="filter"} (\S+)', text)
    return {float(most): float(calls) for most, calls in found}


def calls(before: dict[float, float], after: dict[float, float]) -> float:
    """Return the number of filter calls in between."""
    return max(after.values(), default=0.0) - max(before.values(), default=0.0)


def quantile(before: dict[float, float], after: dict[float, float], part: float) -> float:
    """Return the upper bound of the quantile's bucket, in seconds."""
    calls = {most: after[most] - before.get(most, 0.0) for most in after}
    total = max(calls.values(), default=0.0)
    return next((most for most in sorted(calls) if calls[most] >= part * total), float("nan"))


def memory(system: Kube) -> dict[str, Manifest]:
    """Return each container's maximum MiB and its limit."""
    found: dict[str, Manifest] = {}
    for component in ("operator", "scheduler", "agent"):
        for each in pods_of_part(system, component):
            for container in each["spec"]["containers"]:
                if container["name"] == "kube-scheduler":
                    continue
                name = each["metadata"]["name"]
                peak = peak_mib(system, name, container["name"])
                limit = container["resources"]["limits"]["memory"]
                found[f"{name}/{container['name']}"] = {"peak_mib": peak, "limit": limit}
    return found


def failures(report: Manifest) -> list[str]:
    """Return the reasons why the run fails or its figures are not valid."""
    found = [f"{name} was restarted" for name, count in report["restarts"].items() if count]
    found += [f"no {what} was admitted" for what in ATTACKS if not report["admitted"].get(what)]
    if report["filter_calls"] <= 0:
        found.append("no call of filter was counted")
    if not report["placed"]:
        found.append("no pod was placed")
    return found


def leader_name(system: Kube) -> str:
    """Return the pod of the leading scheduler; wait for one."""
    found = wait_for(lambda: leader(system, "scheduler"), seconds=60, what="a leading scheduler")
    name: str = found["metadata"]["name"]
    return name


def measure(system: Kube, friend: Kube, attacker: Attacker, seconds: float) -> Manifest:
    """Attack for so many seconds while pods are placed, and return the report."""
    with ledger_reader(system) as ledger:
        leaders = [leader_name(system)]
        before, restarted = filter_buckets(ledger.text()), restarts(system)
        for number in range(FLOODS):
            command = {"command": ["python3", "-c", FLOOD]}
            attacker.create("flood", pod(f"flood-{number}", container=command))
        tried: list[float | None] = []
        with run_in_background(attacker.round):
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                tried.append(place_one(friend, len(tried)))
        after, again = filter_buckets(ledger.text()), restarts(system)
        leaders.append(leader_name(system))
    if leaders[0] != leaders[1]:
        before = {}
    waits = sorted(seconds for seconds in tried if seconds is not None)
    return {
        "seconds": seconds,
        "letters": attacker.letters,
        "gpus": attacker.gpus,
        "terms": attacker.terms,
        "admitted": attacker.admitted,
        "refused": attacker.refused,
        "leaders": leaders,
        "filter_calls": calls(before, after),
        "filter_p50_seconds": quantile(before, after, 0.5),
        "filter_p99_seconds": quantile(before, after, 0.99),
        "placed": len(waits),
        "not_placed": len(tried) - len(waits),
        "place_p50_seconds": round(statistics.median(waits), 2) if waits else None,
        "place_worst_seconds": round(max(waits, default=0.0), 2),
        "memory": memory(system),
        "restarts": {name: again[name] - restarted.get(name, 0) for name in again},
    }


def main() -> int:
    """Run and print the report; return 1 if there are failures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    seconds = parser.parse_args().seconds
    system = Kube(STATE / "kubeconfig", SYSTEM_NAMESPACE)
    hostile, friend = Kube(STATE / "kubeconfig", HOSTILE), Kube(STATE / "kubeconfig", FRIENDLY)
    for kube in (hostile, friend):
        kube.insist("create", "namespace", kube.namespace)
        kube.insist("wait", "serviceaccount/default", "--for=create", "--timeout=30s")
    try:
        report = measure(system, friend, Attacker(settle(hostile)), seconds)
    finally:
        for namespace in (HOSTILE, FRIENDLY):
            system.insist("delete", "namespace", namespace, "--wait=false")
    print(json.dumps(report))
    found = failures(report)
    print(*found, sep="\n", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
