# SPDX-License-Identifier: Apache-2.0
"""Fuzz the REST API of the cluster that is up: `make fuzz-api`, API_FUZZ_SECONDS, API_FUZZ_SEED.

schemathesis calls the real server with the token of a tenant that may create GPUJobs in one
namespace with a quota of two GPUs and three GPUJobs: a call that waits for GPUs is answered after
eight seconds. It passes if there is no 5xx and every answer conforms to the OpenAPI document. It
prints the result as one line of JSON; the exit status is 1 on a failure.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import urllib.parse

from fixtures import namespace
from harness import STATE, SYSTEM_NAMESPACE, Kube
from rest_clients import forwarded, viewer

from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths

HERE = pathlib.Path(__file__).parent
SAID = 20_000
"""Number of characters of schemathesis' own report that are kept."""

ROLES = ("gpupack-edit", "view")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
"""Without positive_data_acceptance: an allowed name mostly does not exist, which is 403."""

CALLS_A_SECOND = 18
"""A user has twenty: what is answered 429 has tried nothing. One worker makes them: `ast.parse`, by
which Hypothesis names lambdas, fails at times in threads of Python 3.11.
"""


def quotas(jobs):
    """Of two GPUs and so many GPUJobs."""
    return (
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few"},
            "spec": {"hard": {"count/gpujobs.gpupack.dev": str(jobs)}},
        },
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUQuota",
            "metadata": {"name": "default"},
            "spec": {"gpus": [{"model": "*", "nominal": 2, "borrowingLimit": 0}]},
        },
    )


def main():
    options = parse()
    cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
    system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)
    with namespace(cluster, "gpupack-api-fuzz") as kube, forwarded(system) as (url, ca):
        kube.submit(*quotas(jobs=3))
        with viewer(kube, *ROLES) as token:
            report = fuzz(url, ca, token, seed=options.seed, seconds=options.seconds)
    print(json.dumps(report))
    sys.exit(bool(report["broken"]))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--seconds", type=int, default=600)
    return parser.parse_args()


def fuzz(url, ca, token, *, seed, seconds):
    """Run schemathesis in a process of its own; what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        events = pathlib.Path(folder) / "events.ndjson"
        trusted = pathlib.Path(folder) / "ca.crt"
        trusted.write_text(ca)
        command = [
            str(pathlib.Path(sys.executable).with_name("st")),
            *("run", f"{url}openapi/openapi.json"),
            *("--header", f"Authorization: Bearer {token}"),
            *("--tls-verify", str(trusted)),
            *("--checks", ",".join(CHECKS)),
            *("--seed", str(seed), "--max-time", str(seconds)),
            *("--rate-limit", f"{CALLS_A_SECOND}/s", "--workers", "1"),
            *("--request-timeout", "30", "--continue-on-failure", "--warnings", "off"),
            *("--report", "ndjson", "--report-ndjson-path", str(events)),
        ]
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"SCHEMATHESIS_HOOKS": "rest_hooks", "PYTHONPATH": str(HERE)},
            text=True,
            capture_output=True,
            check=False,
        )
        found = counted(events)
    broken = judged(found)
    if done.returncode:
        broken.append(f"schemathesis ended with {done.returncode}")
    report = {"seed": seed, "seconds": seconds, **found, "broken": broken}
    return report | ({"said": done.stdout[-SAID:] + done.stderr[-SAID:]} if broken else {})


def counted(events):
    """Calls by status, operations by calls, and checks by what came of them."""
    statuses, operations, checks = (collections.Counter() for _ in range(3))
    for recorder in recorders(events):
        for interaction in recorder.get("interactions", {}).values():
            answer = interaction["response"]
            statuses[str(answer["status_code"]) if answer else "none"] += 1
            path = urllib.parse.urlsplit(interaction["request"]["uri"]).path
            operations[f"{interaction['request']['method']} {path.split('/')[4]}"] += 1
        for each in itertools.chain.from_iterable(recorder.get("checks", {}).values()):
            checks[f"{each['name']} {each['status']}"] += 1
    return {
        "calls": statuses.total(),
        "statuses": dict(sorted(statuses.items())),
        "operations": dict(operations.most_common(30)),
        "checks": dict(sorted(checks.items())),
    }


def recorders(events):
    """What schemathesis noted of each of its scenarios."""
    if events.exists():
        with events.open() as lines:
            for line in lines:
                if scenario := json.loads(line).get("ScenarioFinished"):
                    yield scenario["recorder"]


def judged(found):
    """Which parts of the bar are broken."""
    statuses = found["statuses"]
    return [
        *(f"{statuses[code]} answers {code}" for code in statuses if code.startswith("5")),
        *(["a call without an answer"] if "none" in statuses else []),
        *(what for what in found["checks"] if not what.endswith(" success")),
        *(["no call was taken"] if "200" not in statuses else []),
    ]


if __name__ == "__main__":
    main()
