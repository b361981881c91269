# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus asks the parts: what the dashboard shows and what the rules record is there."""

import base64
import json
import ssl
import time

import httpx
import pytest
from dashboard_queries import empty, queries
from harness import cluster_kind, wait_for
from parts import pods_of_part
from prometheus_run import forget_account, prometheus

pytestmark = pytest.mark.skipif(
    cluster_kind() == "kind", reason="pods of kind cannot be reached from this host"
)

SERVED_BY = {
    "scheduler": ("gpupack-extender", "https"),
    "operator": ("gpupack-metrics", "metrics"),
    "agent": ("gpupack-metrics", "metrics"),
    "api": ("gpupack-api", "https"),
}


@pytest.fixture(scope="module")
def asked(system, tmp_path_factory):
    """A Prometheus that scrapes every second."""
    with prometheus(system, tmp_path_factory.mktemp("prometheus")) as found:
        yield found
    forget_account(system)


@pytest.fixture
def busy(kube, judged):
    """A namespace with a quota in which jobs run, wait, fail and share."""
    quota = {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUQuota",
        "metadata": {"name": "default"},
        "spec": {"gpus": [{"model": "*", "nominal": 2}]},
    }
    kube.submit(quota)
    kube.submit(
        judged.job("runs", gpus=1, seconds=90),
        judged.job("ends", gpus=1, seconds=0.1),
        judged.job("fails", gpus=1, seconds=0.1, exit_code=3),
        judged.job("too-large", gpus=8, workers=9),
        judged.pod("alone", seconds=90),
    )
    kube.wait_phase("runs", "Running")
    kube.wait_phase("ends", "Succeeded")
    return kube


def test_every_part_is_scraped(asked, system):
    wanted = {f"gpupack-{part}": len(pods_of_part(system, part)) for part in SERVED_BY}
    wait_for(lambda: asked.up() == wanted, seconds=60, what=f"{wanted} answer")


def test_no_query_of_the_dashboard_is_empty_while_jobs_run(asked, busy):
    """tests/unit/agent/test_agent.py checks the queries about a driver's figures."""
    left, end = queries(of_a_driver=False), time.monotonic() + 60
    while left and time.monotonic() < end:
        left = empty(asked, left)
    assert not left
    assert asked.query(f'gpupack:quota_gpus{{namespace="{busy.namespace}",amount="used"}}')


def test_every_rule_is_evaluated_and_every_record_is_there(asked, busy):
    rules = asked.rules()
    wait_for(
        lambda: {rule["health"] for rule in asked.rules()} == {"ok"},
        seconds=60,
        what="every rule was evaluated",
    )
    assert [rule["name"] for rule in rules if rule.get("lastError")] == []
    records = {rule["name"] for rule in rules if rule["type"] == "recording"}
    records -= {"gpupack:namespace_gpu_power_watts:rate5m"}
    wait_for(
        lambda: all(asked.query(name) for name in records),
        seconds=60,
        what=f"{sorted(name for name in records if not asked.query(name))} are recorded",
    )


def test_a_tenant_gets_no_part_s_metrics(kube, system):
    kube.insist("create", "serviceaccount", "viewer")
    account = f"--serviceaccount={kube.namespace}:viewer"
    kube.insist("create", "rolebinding", "viewer", "--clusterrole=edit", account)
    token = kube.insist("create", "token", "viewer").strip()
    for part in SERVED_BY:
        assert scraped(system, part, "").status_code == 401
        refused = scraped(system, part, token)
        assert (refused.status_code, "gpupack_" in refused.text) == (403, False)


def scraped(system, part, token):
    """The answer of one pod of a part, by the name in its certificate."""
    name, port_name = SERVED_BY[part]
    secret = json.loads(system.insist("get", "secret", f"{name}-certificate", "-o", "json"))
    trusted = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
    pod = pods_of_part(system, part)[0]
    (port,) = (
        each["containerPort"]
        for container in pod["spec"]["containers"]
        for each in container.get("ports", ())
        if each.get("name") == port_name
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(verify=trusted) as client:
        return client.get(
            f"https://{pod['status']['podIP']}:{port}/metrics",
            headers=headers,
            extensions={"sni_hostname": f"{name}.{system.namespace}.svc"},
            timeout=20,
        )
