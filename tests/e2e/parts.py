# SPDX-License-Identifier: Apache-2.0
"""gpupack's own pods as the suite sees and changes them."""

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness import Kube, wait_for

OPERATOR = "deployment/gpupack-operator"
SCHEDULER = "deployment/gpupack-scheduler"
AGENT = "daemonset/gpupack-agent"
PARTS = (OPERATOR, SCHEDULER, AGENT)
KINDS = {"deployment": "Deployment", "daemonset": "DaemonSet"}
STATE_OF_PARTS = "deployments,daemonsets,pods,leases,endpointslices"
PLAN_SERVICE = "gpupack-extender"
LEASES = {"operator": "gpupack-operator", "scheduler": "gpupack-scheduler"}
"""By which Lease the replicas of a part elect a leader."""
UNDER_WAY = (
    r'^(gpupack_extender_(?:claims{state="(?!bound)\w+"}|devices{state="(?:held|shared)"})) (\S+)$'
)
READ = """
import ssl, urllib.request
request = urllib.request.Request(
    "https://gpupack-extender.{namespace}.svc:8443/metrics",
    headers={{"Authorization": "Bearer {token}"}})
print(urllib.request.urlopen(request, context=ssl._create_unverified_context()).read().decode())
"""


def all_up(system: Kube) -> None:
    """Wait until every part runs in its newest form, and those with replicas have a leader."""
    if settled(json.loads(system.insist("get", STATE_OF_PARTS, "-o", "json"))["items"]):
        return
    for workload in PARTS:
        rolled_out(system, workload)
    for component in LEASES:
        wait_for(
            functools.partial(leader, system, component),
            seconds=60,
            what=f"a leader of {component}",
        )


def settled(items: Iterable[dict[str, Any]]) -> bool:
    """Return whether all is up by these objects of the namespace, of every kind in STATE_OF_PARTS.

    One call where `all_up` makes a dozen, before each test that is alone.
    """
    found = {(item["kind"], item["metadata"]["name"]): item for item in items}
    workloads = (each.partition("/") for each in PARTS)
    if not all(_newest(found[KINDS[kind], name]) for kind, _, name in workloads):
        return False
    leads = {part: found.get(("Lease", name), {}) for part, name in LEASES.items()}
    pods = {
        part: found.get(("Pod", lease.get("spec", {}).get("holderIdentity", "").partition("_")[0]))
        for part, lease in leads.items()
    }
    if not all(pod and "deletionTimestamp" not in pod["metadata"] for pod in pods.values()):
        return False
    slices = (
        item
        for (kind, _), item in found.items()
        if kind == "EndpointSlice"
        and item["metadata"]["labels"].get("kubernetes.io/service-name") == PLAN_SERVICE
    )
    scheduler = pods["scheduler"]
    assert scheduler is not None
    return _addresses(slices) == [scheduler["status"].get("podIP")]


def _newest(workload: dict[str, Any]) -> bool:
    """Return whether a rollout is complete, as `kubectl rollout status` judges."""
    status, meta = workload.get("status", {}), workload["metadata"]
    if status.get("observedGeneration", 0) < meta["generation"]:
        return False
    if workload["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        counts = ("updatedNumberScheduled", "numberAvailable")
    else:
        wanted = workload["spec"]["replicas"]
        counts = ("replicas", "updatedReplicas", "availableReplicas")
    return all(status.get(count, 0) == wanted for count in counts)


def leader(system: Kube, component: str) -> dict[str, Any] | None:
    """The pod that leads a part, and to which the plan API's Service leads; None if none does."""
    holder = lease_holder(system, LEASES[component]).partition("_")[0]
    pods = {pod["metadata"]["name"]: pod for pod in pods_of_part(system, component)}
    found = pods.get(holder)
    if component == "scheduler" and found:
        return found if plan_addresses(system) == [found["status"].get("podIP")] else None
    return found


def peak_mib(system: Kube, pod: str, container: str) -> int:
    """VmHWM of a container's first process: the most that it has had resident."""
    command = ("--", "grep", "VmHWM", "/proc/1/status")
    shown = system.insist("exec", pod, "-c", container, *command)
    return int(shown.split()[1]) // 1024


def plan_addresses(system: Kube) -> list[str]:
    """Return the addresses behind the Service of the plan API."""
    selector = f"--selector=kubernetes.io/service-name={PLAN_SERVICE}"
    return _addresses(
        json.loads(system.insist("get", "endpointslices", selector, "-o", "json"))["items"]
    )


def _addresses(slices: Iterable[dict[str, Any]]) -> list[str]:
    endpoints = [endpoint for found in slices for endpoint in found["endpoints"] or ()]
    return [address for endpoint in endpoints for address in endpoint["addresses"]]


def rolled_out(system: Kube, workload: str, *, seconds: int = 180) -> None:
    """Wait until a part runs in its newest form."""
    system.insist("rollout", "status", workload, f"--timeout={seconds}s")


def pods_of_part(system: Kube, component: str) -> list[dict[str, Any]]:
    """The pods of one part that are not being deleted."""
    selector = f"--selector=app.kubernetes.io/component={component}"
    done = system.kubectl("get", "pods", selector, "-o", "json")
    assert done.returncode == 0, done.stderr
    pods = json.loads(done.stdout)["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def restarts(system: Kube) -> dict[str, int]:
    """Return how often each container of each part was restarted, by pod and container."""
    return {
        f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
        for component in ("operator", "scheduler", "agent")
        for pod in pods_of_part(system, component)
        for status in pod["status"].get("containerStatuses", ())
    }


def lease_holder(system: Kube, name: str) -> str:
    """Return the holder of a Lease."""
    path = "jsonpath={.spec.holderIdentity}"
    return system.kubectl("get", "lease", name, "-o", path).stdout


@contextlib.contextmanager
def environment(
    system: Kube, workload: str, container: str, variables: Mapping[str, str]
) -> Iterator[None]:
    """Give a container other environment for a while; its pods are replaced each time."""
    before = environment_of(system, workload, container)
    kept = [f"{name}={before[name]}" if name in before else f"{name}-" for name in variables]
    with contextlib.ExitStack() as stack:
        stack.callback(rolled_out, system, workload)
        stack.callback(_set_environment, system, workload, container, kept)
        pairs = [f"{name}={value}" for name, value in variables.items()]
        _set_environment(system, workload, container, pairs)
        rolled_out(system, workload)
        yield


def led_through(host: str, port: int) -> dict[str, str]:
    """Environment by which a part takes another address for the API server's."""
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}


@contextlib.contextmanager
def ledger_reader(system: Kube) -> Iterator["Ledger"]:
    """The leading extender's figures, read by an account that may."""
    account = "ledger-reader"
    binding = ("clusterrolebinding", f"{system.namespace}-{account}")
    with contextlib.ExitStack() as stack:
        stack.callback(system.kubectl, "delete", "serviceaccount", account)
        stack.callback(system.kubectl, "delete", *binding)
        system.kubectl("create", "serviceaccount", account)
        subject = f"--serviceaccount={system.namespace}:{account}"
        system.kubectl("create", *binding, "--clusterrole=system:monitoring", subject)
        token = system.kubectl("create", "token", account)
        assert token.returncode == 0, token.stderr
        yield Ledger(system, token.stdout.strip())


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Ledger of the leading extender."""

    system: Kube
    token: str

    def figure(self, name: str, **labels: str) -> float:
        """One metric."""
        wanted, text = {f'{key}="{value}"' for key, value in labels.items()}, self.text()
        for line in text.splitlines():
            found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if found and wanted <= set((found[1] or "").split(",")):
                return float(found[2])
        raise AssertionError(f"no metric {name} {labels} in: {text}")

    def wait_empty(self) -> None:
        """Wait until no GPU is held and no claim is under way; other pods are bound for ever."""

        def look() -> bool:
            found = {
                name: float(value)
                for name, value in re.findall(UNDER_WAY, self.text(), flags=re.MULTILINE)
            }
            return bool(found) and not any(found.values())

        wait_for(look, seconds=30, what="the ledger holds no GPU")

    def text(self) -> str:
        """All metrics; waits for them: while none leads, none answers."""
        script = READ.format(namespace=self.system.namespace, token=self.token)
        command = ("exec", OPERATOR, "--", "python3", "-c", script)
        return wait_for(
            lambda: self.system.kubectl(*command).stdout or None,
            seconds=60,
            what="figures of the leading extender",
        )


def environment_of(system: Kube, workload: str, container: str) -> dict[str, str]:
    """The variables of a part's container that have a value of their own."""
    shown = json.loads(system.insist("get", workload, "-o", "json"))
    containers = shown["spec"]["template"]["spec"]["containers"]
    (found,) = [each for each in containers if each["name"] == container]
    return {each["name"]: each["value"] for each in found["env"] if "value" in each}


def _set_environment(system: Kube, workload: str, container: str, pairs: list[str]) -> None:
    done = system.kubectl("set", "env", workload, "-c", container, *pairs)
    assert done.returncode == 0, done.stderr
