# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_cli import errors
from gpupack_kubeclient import errors as kube
from gpupack_kubeclient.environment import SettingsInvalid


@pytest.mark.parametrize(
    ("status", "kind", "number"),
    [
        (400, errors.InputWrong, 65),
        (401, errors.NotAllowed, 77),
        (403, errors.NotAllowed, 77),
        (404, errors.NotThere, 66),
        (409, errors.CliError, 1),
        (410, errors.CliError, 1),
        (422, errors.InputWrong, 65),
        (500, errors.ClusterAway, 69),
        (503, errors.ClusterAway, 69),
    ],
)
def test_every_refusal_has_its_exit_status(status, kind, number):
    body = b'{"message": "the words of the server", "reason": "R"}'
    found = errors.of_kube(kube.from_response(status, body, call="GET /x"))
    assert type(found) is kind
    assert found.status == number
    assert "the words of the server" in str(found)


def test_a_cluster_without_gpupack_is_said_to_be_one():
    body = b'{"message": "the server could not find the requested resource", "reason": "NotFound"}'
    found = errors.of_kube(kube.from_response(404, body, call="GET /apis/gpupack.dev"))
    assert "gpupack is not installed" in str(found)


def test_what_is_no_answer_at_all_has_its_status_too():
    assert errors.of_kube(kube.Unreachable("no answer")).status == 69
    assert errors.of_kube(SettingsInvalid("no kubeconfig")).status == 78
    assert errors.of_kube(kube.Oversized("too large")).status == 1


def test_a_job_that_failed_ends_the_command_as_itself():
    assert errors.JobFailed("it failed", status=3).status == 3


def test_a_name_that_is_taken_says_what_to_do():
    body = b'{"message": "gpujobs \\"a\\" already exists", "reason": "AlreadyExists"}'
    found = errors.of_kube(kube.from_response(409, body, call="POST /x"))
    assert (found.status, "choose another --name" in str(found)) == (65, True)


@pytest.mark.parametrize(("verb", "told"), [("list", True), ("get", True), ("patch", False)])
def test_who_may_not_read_nodes_is_told_which_role_does_and_what_shows_them_without(verb, told):
    said = (
        f'gpunodes.gpupack.dev is forbidden: User "bob" cannot {verb} resource "gpunodes" in API '
        'group "gpupack.dev" at the cluster scope'
    )
    body = msgspec.json.encode({"message": said, "reason": "Forbidden"})
    found = errors.of_kube(kube.from_response(403, body, call="GET /x"))
    assert "ask an administrator of the cluster for that right" in str(found)
    assert ("gpupack-view; `gpupack top`, `nodes`" in str(found)) is told
    assert ("`gpupack drain`, `gpu cordon` and `gpu uncordon` also need" in str(found)) is (
        verb == "get"
    )


def test_a_missing_object_is_named_with_its_namespace():
    body = b'{"message": "gpujobs.gpupack.dev \\"train\\" not found", "reason": "NotFound"}'
    call = "GET /apis/gpupack.dev/v1beta1/namespaces/team/gpujobs/train"
    found = errors.of_kube(kube.from_response(404, body, call=call))
    said = 'gpujobs.gpupack.dev "train" not found in namespace team; -n names another one'
    assert str(found) == said
