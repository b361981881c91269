# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_cli import errors
from gpupack_kubeclient import errors as kube
from gpupack_kubeclient.environment import SettingsInvalid


@pytest.mark.parametrize(
    ("status", "kind", "number"),
    [
        (400, errors.InputInvalid, 65),
        (401, errors.PermissionDenied, 77),
        (403, errors.PermissionDenied, 77),
        (404, errors.ObjectNotFound, 66),
        (409, errors.CliError, 1),
        (410, errors.CliError, 1),
        (422, errors.InputInvalid, 65),
        (500, errors.ClusterUnavailable, 69),
        (503, errors.ClusterUnavailable, 69),
    ],
)
def test_every_refusal_has_its_exit_status(status, kind, number):
    body = b'{"message": "the words of the server", "reason": "R"}'
    found = errors.from_kube_error(kube.from_response(status, body, call="GET /x"))
    assert type(found) is kind
    assert found.status == number
    assert "the words of the server" in str(found)


def test_a_cluster_without_gpupack_is_reported_as_such():
    body = b'{"message": "the server could not find the requested resource", "reason": "NotFound"}'
    found = errors.from_kube_error(kube.from_response(404, body, call="GET /apis/gpupack.dev"))
    assert "gpupack is not installed" in str(found)


def test_a_missing_answer_has_its_exit_status():
    assert errors.from_kube_error(kube.Unreachable("no answer")).status == 69
    assert errors.from_kube_error(SettingsInvalid("no kubeconfig")).status == 78
    assert errors.from_kube_error(kube.Oversized("too large")).status == 1


def test_a_failed_job_gives_the_command_its_exit_status():
    assert errors.JobFailed("it failed", status=3).status == 3


def test_an_existing_name_is_reported_with_a_fix():
    body = b'{"message": "gpujobs \\"a\\" already exists", "reason": "AlreadyExists"}'
    found = errors.from_kube_error(kube.from_response(409, body, call="POST /x"))
    assert (found.status, "choose another --name" in str(found)) == (65, True)


@pytest.mark.parametrize(("verb", "has_hint"), [("list", True), ("get", True), ("patch", False)])
def test_a_missing_permission_for_nodes_names_role_and_alternative(verb, has_hint):
    said = (
        f'gpunodes.gpupack.dev is forbidden: User "bob" cannot {verb} resource "gpunodes" in API '
        'group "gpupack.dev" at the cluster scope'
    )
    body = msgspec.json.encode({"message": said, "reason": "Forbidden"})
    found = errors.from_kube_error(kube.from_response(403, body, call="GET /x"))
    assert "request that permission from an administrator of the cluster" in str(found)
    assert ("gpupack-view; `gpupack top`, `nodes`" in str(found)) is has_hint
    assert ("`gpupack drain`, `gpu cordon` and `gpu uncordon` also need" in str(found)) is (
        verb == "get"
    )


def test_a_missing_object_is_named_with_its_namespace():
    body = b'{"message": "gpujobs.gpupack.dev \\"train\\" not found", "reason": "NotFound"}'
    call = "GET /apis/gpupack.dev/v1beta1/namespaces/team/gpujobs/train"
    found = errors.from_kube_error(kube.from_response(404, body, call=call))
    said = 'gpujobs.gpupack.dev "train" not found in namespace team; -n names another one'
    assert str(found) == said
