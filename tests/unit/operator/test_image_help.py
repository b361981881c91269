# SPDX-License-Identifier: Apache-2.0
"""Messages about an image that a registry refuses to serve."""

import pytest

from gpupack_operator.decision.image_help import image_help

CONTAINERD = (
    'Back-off pulling image "registry.example/w:1": ErrImagePull: failed to pull and unpack image '
    '"registry.example/w:1": failed to resolve reference "registry.example/w:1": pull access '
    "denied, repository does not exist or may require authorization: authorization failed: no "
    "basic auth credentials"
)
HARBOR = "unexpected status from HEAD request to https://r.example/v2/w/1: 401 Unauthorized"
CRI_O = "reading manifest 1 in r.example/w: unauthorized: access to the requested resource"
GONE = 'failed to resolve reference "registry.example/w:2": registry.example/w:2: not found'


@pytest.mark.parametrize("said", [CONTAINERD, HARBOR, CRI_O])
def test_a_missing_secret_is_named_with_the_command_that_creates_it(said):
    help_text = image_help(said, namespace="team", secrets=("ours",))
    assert "Secret ours of namespace team" in help_text
    assert "kubectl --namespace=team create secret docker-registry ours " in help_text


def test_the_chart_value_is_named_if_it_is_not_set():
    assert "image.pullSecrets" in image_help(CONTAINERD, namespace="team", secrets=())


def test_the_template_field_is_named_for_an_image_of_the_user():
    help_text = image_help(CONTAINERD, namespace="team", secrets=None)
    assert "namespace team in spec.template.spec.imagePullSecrets" in help_text


@pytest.mark.parametrize("said", [GONE, "", "context deadline exceeded"])
def test_no_help_is_added_if_credentials_are_not_the_cause(said):
    assert image_help(said, namespace="team", secrets=("ours",)) == ""
