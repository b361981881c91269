# SPDX-License-Identifier: Apache-2.0
"""Every port beyond loopback authenticates its callers."""

import json

import pytest
from harness import SYSTEM_NAMESPACE
from manifests import JUDGE_IMAGE
from parts import OPERATOR, pods_of_part

from gpupack_crds import names

PLAN = {
    "namespace": "default",
    "name": "forged",
    "uid": "1",
    "attempt": 1,
    "spec": {"gpus": 8, "workers": 2},
    "podSpec": {},
}
PLAN_PATH = names.PLAN_ROUTE.format(namespace="default")
CALL = """
import json, ssl, sys, urllib.error, urllib.request
request = urllib.request.Request(
    "https://gpupack-extender.{namespace}.svc:8443{path}",
    data={data!r}, headers=json.loads({headers!r}))
try:
    print(urllib.request.urlopen(request, context=ssl._create_unverified_context()).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def call_from_a_pod(kube, path, *, headers, data):
    headers = {"Content-Type": "application/json"} | headers
    script = CALL.format(
        namespace=SYSTEM_NAMESPACE, path=path, data=data, headers=json.dumps(headers)
    )
    # Not `run -i`: a pod that ends before kubectl has attached leaves its output behind.
    ran = kube.kubectl(
        "run", "caller", f"--image={JUDGE_IMAGE}", "--restart=Never",
        "--command", "--", "python3", "-c", script,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    done = kube.kubectl("wait", "pod/caller", ended, "--timeout=60s")
    assert done.returncode == 0, done.stderr
    return kube.kubectl("logs", "caller").stdout


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, "401"), ({"Authorization": "Bearer forged"}, "401")],
    ids=["without a token", "with a forged token"],
)
def test_the_plan_api_refuses_callers_it_does_not_know(kube, headers, status):
    answer = call_from_a_pod(kube, PLAN_PATH, headers=headers, data=json.dumps(PLAN).encode())
    assert answer.startswith(status), answer


def test_the_plan_api_refuses_a_caller_without_the_right(kube):
    token = kube.kubectl("create", "token", "default", "--audience=gpupack-extender").stdout
    headers = {"Authorization": f"Bearer {token.strip()}"}
    answer = call_from_a_pod(kube, PLAN_PATH, headers=headers, data=json.dumps(PLAN).encode())
    assert answer.startswith("403"), answer


def test_the_verbs_of_the_scheduler_do_not_listen_beyond_loopback(system):
    addresses = [pod["status"]["podIP"] for pod in pods_of_part(system, "scheduler")]
    script = f"import socket; print(*(socket.socket().connect_ex((a, 8888)) for a in {addresses}))"
    codes = system.kubectl("exec", OPERATOR, "--", "python3", "-c", script).stdout.split()
    assert codes == ["111"] * len(addresses)


def test_a_tenant_takes_no_gpu_out_of_service(tenant, system):
    (node, *_) = (each["metadata"]["name"] for each in system.gpunodes())
    patch = '{"spec":{"maintenance":[{"reason":"mine","drain":"All"}]}}'
    refused = tenant.kubectl("patch", "gpunode", node, "--type=merge", f"--patch={patch}")
    assert "forbidden" in refused.stderr.lower()


def test_a_tenant_cannot_read_the_holders_of_other_namespaces(tenant):
    listed = tenant.kubectl("get", "gpunodes", "--output=wide")
    assert (listed.stdout, "forbidden" in listed.stderr.lower()) == ("", True)
    assert tenant.kubectl("get", "gpujobs").returncode == 0


def test_no_tenant_publishes_a_release(resident):
    """Commands look for the release where every user reads and no tenant writes."""
    where = ("--namespace=kube-public", "--dry-run=server")
    refused = resident.kubectl("create", "configmap", "gpupack-mine", *where)
    assert (refused.returncode, "is forbidden" in refused.stderr) == (1, True)
