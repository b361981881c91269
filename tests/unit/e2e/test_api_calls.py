# SPDX-License-Identifier: Apache-2.0
"""What of `kubectl get` the cluster suite asks the API server itself."""

import api_calls
import pytest

OURS = "/apis/gpupack.dev/v1beta1"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("gpujob", "a"), (f"{OURS}/namespaces/team/gpujobs/a", {})),
        (("gpunodes",), (f"{OURS}/gpunodes", {})),
        (("pods", "--selector=a=b"), ("/api/v1/namespaces/team/pods", {"labelSelector": "a=b"})),
        (("nodes", "--selector=!a"), ("/api/v1/nodes", {"labelSelector": "!a"})),
        (
            ("events", "--field-selector=involvedObject.name=a"),
            ("/api/v1/namespaces/team/events", {"fieldSelector": "involvedObject.name=a"}),
        ),
        (("pods", "--all-namespaces"), None),
        (("leases", "a"), None),
    ],
)
def test_unknown_arguments_are_left_to_kubectl(arguments, asked):
    assert api_calls.request("team", *arguments) == asked


def test_items_of_a_list_are_shown_as_kubectl_shows_them():
    item = {"metadata": {"name": "a", "managedFields": [1]}}
    found = api_calls.as_kubectl({"kind": "PodList", "apiVersion": "v1", "items": [item]})
    assert found["items"] == [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}]


def test_a_kubeconfig_without_a_client_certificate_is_left_to_kubectl(tmp_path):
    path = tmp_path / "kubeconfig"
    assert api_calls.calls(path) is None
    for text in ("", "users: [{user: {token: a}}]", "a: [1"):
        path.write_text(text)
        assert api_calls.calls(path) is None
