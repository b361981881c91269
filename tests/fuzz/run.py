# SPDX-License-Identifier: Apache-2.0
"""Fuzz the extender of the cluster that is up: `make fuzz FUZZ_SECONDS=300 FUZZ_SEED=…`.

The calls go to the real process, from inside its pod's network namespace, while a GPUJob holds
GPUs. The bar: no 5xx, every malformed call a 4xx that says why in JSON, no growth of the process,
the ledger and the cluster's placements afterwards as they were before. It prints the result as one
line of JSON; the exit status is 1 on a failure. `--only N` sends call N of a seed once more.
"""

import argparse
import contextlib
import hashlib
import json
import pathlib
import re
import secrets
import subprocess
import sys
import time

from caller import rss_kib
from harness import STATE, SYSTEM_NAMESPACE, Kube
from manifests import JUDGE_IMAGE

from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths

NAMESPACE = "gpupack-fuzz"
ACCOUNT = "fuzz"
SETTLE_SECONDS = 40
"""Places that filter gave are free after 30 s, plans after 10 s."""
MAX_GROWTH_KIB = 24 << 10
"""From a fifth of the time to its end. The first 10 MB bodies stretch the heap."""


def main():
    options = parse()
    cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
    system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=NAMESPACE)
    pid = extender_pid(cluster)
    with contextlib.ExitStack() as stack:
        stack.enter_context(metrics_reader(kube))
        stack.enter_context(holding_gpus(kube))
        tokens = make_tokens(system, kube)
        if options.only is not None:
            run_caller(pid, task_of(options, system, tokens, pid) | {"only": options.only})
            return
        report = fuzz(options, system, kube, tokens, pid)
    print(json.dumps(report))
    sys.exit(bool(report["broken"]))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", type=int)
    return parser.parse_args()


def fuzz(options, system, kube, tokens, pid):
    """Warm up, measure, fuzz, let go what was reserved for seconds, measure again."""
    before = digests(system, kube, pid)
    found = run_caller(pid, task_of(options, system, tokens, pid))
    time.sleep(SETTLE_SECONDS)
    after = digests(system, kube, pid)
    warm = next((kib for at, kib in found["rss_kib"] if at >= options.seconds / 5), 0)
    report = {
        "seed": options.seed,
        "seconds": options.seconds,
        "calls": found["calls"],
        "statuses": found["statuses"],
        "server_errors": found["statuses"].get("5xx", 0),
        "faults": found["fault_count"],
        "slowest_ms": found["slowest_ms"],
        "rss_kib": {
            "start": found["rss_kib"][0][1],
            "warm": warm,
            "end": found["rss_kib"][-1][1],
            "settled": rss_kib(pid),
            "every_30_s": [kib for _, kib in found["rss_kib"][::6]],
        },
        "before": before,
        "after": after,
        "kinds": found["kinds"],
        "first_faults": found["faults"],
    }
    return report | {"broken": broken(report, is_same_process=extender_lives(pid))}


def broken(report, *, is_same_process):
    """Which parts of the bar are broken."""
    rss = report["rss_kib"]
    held = {
        "a 5xx": report["server_errors"] == 0,
        "an answer that is wrong": report["faults"] == 0,
        "the process died": is_same_process,
        "memory grew": rss["end"] - rss["warm"] <= MAX_GROWTH_KIB,
        "the ledger changed": report["before"] == report["after"],
        "no call": report["calls"] > 0,
    }
    return [what for what, is_kept in held.items() if not is_kept]


def task_of(options, system, tokens, pid):
    nodes = json.loads(system.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    return {
        "seed": options.seed,
        "seconds": options.seconds,
        "pid": pid,
        "nodes": [node["metadata"]["name"] for node in nodes],
        "tokens": tokens,
    }


def run_caller(pid, task):
    """Run caller.py where the extender's ports are."""
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-B"]
    done = subprocess.run(
        [*command, str(pathlib.Path(__file__).with_name("caller.py"))],
        input=json.dumps(task),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def extender_pid(cluster):
    """The extender's process, as this host numbers it."""
    firsts = {cluster_node_pid(cluster, node) for node in cluster.nodes()}
    found = [pid for pid in extenders() if firsts & set(ancestors(pid))]
    if len(found) != 1:
        sys.exit(f"{len(found)} extenders run in the cluster of {STATE}; there must be one")
    return found[0]


def cluster_node_pid(cluster, node):
    (target,) = [word for word in cluster.entry(node) if word.startswith("--target=")]
    return int(target.partition("=")[2])


def extenders():
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if b"gpupack_extender" in (folder / "cmdline").read_bytes():
                yield int(folder.name)


def extender_lives(pid):
    return pid in extenders()


def ancestors(pid):
    """A process, its parent, and so on."""
    while pid:
        yield pid
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        pid = int(re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)[1])


@contextlib.contextmanager
def metrics_reader(kube):
    """An account that may read the extender's metrics, in a namespace of its own."""
    kube.kubectl("create", "namespace", NAMESPACE)
    kube.kubectl("create", "serviceaccount", ACCOUNT)
    binding = ["clusterrolebinding", "gpupack-fuzz"]
    role = ["--clusterrole=gpupack-metrics-reader", f"--serviceaccount={NAMESPACE}:{ACCOUNT}"]
    kube.kubectl("create", *binding, *role)
    try:
        yield
    finally:
        kube.kubectl("delete", *binding)
        kube.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@contextlib.contextmanager
def holding_gpus(kube):
    """Run a GPUJob that holds GPUs, so that the ledger is not empty."""
    container = {
        "name": "worker",
        "image": JUDGE_IMAGE,
        "command": ["sleep", "100000"],
    }
    pod = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    job = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": "holder"},
        "spec": {"workers": 2, "gpus": 2, "template": pod},
    }
    kube.submit(job)
    try:
        kube.wait_phase("holder", "Running", seconds=120)
        yield
    finally:
        kube.delete("gpujob", "holder")


def make_tokens(system, kube):
    """The operator's for the plan API, and two that are good for something else."""
    audience = ["--audience=gpupack-extender", "--duration=1h"]
    asked = [
        system.kubectl("create", "token", "gpupack-operator", *audience),
        system.kubectl("create", "token", "gpupack-operator", "--duration=1h"),
        kube.kubectl("create", "token", ACCOUNT, *audience),
    ]
    return [f"Bearer {done.stdout.strip()}" for done in asked]


def digests(system, kube, pid):
    """What the extender holds, and what the API says about placements."""
    token = kube.kubectl("create", "token", ACCOUNT).stdout.strip()
    command = ["curl", "-sk", "-H", f"Authorization: Bearer {token}"]
    url = "https://127.0.0.1:8443/metrics"
    enter = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    text = subprocess.run(
        [*enter, *command, url], capture_output=True, text=True, check=True
    ).stdout
    held = re.findall(r"^gpupack_extender_(?:claims|devices|contradictions).*$", text, re.MULTILINE)
    pods = json.loads(system.kubectl("get", "pods", "-A", "-o", "json").stdout)["items"]
    placed = sorted(
        (pod["metadata"]["uid"], pod["spec"].get("nodeName"), pod["metadata"].get("annotations"))
        for pod in pods
    )
    return {
        "ledger": hashlib.sha256("\n".join(sorted(held)).encode()).hexdigest()[:16],
        "placements": hashlib.sha256(json.dumps(placed).encode()).hexdigest()[:16],
        "claims": {
            line.split()[0].partition("claims")[2]: line.split()[1]
            for line in held
            if "claims" in line
        },
    }


if __name__ == "__main__":
    main()
