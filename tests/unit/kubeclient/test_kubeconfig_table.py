# SPDX-License-Identifier: Apache-2.0
"""kubectl and gpupack are given the same kubeconfig, and one server compares their requests."""

import pathlib
import shutil

import pytest
from kubeconfig_cases import World, cases
from kubeconfig_table import Bench, can_be_a_pod

ROOT = pathlib.Path(__file__).parents[3]
# Of the version that the cluster's binaries have: older ones know fewer settings.
KUBECTL = shutil.which("kubectl", path=str(ROOT / ".dev" / "bin"))
TITLES = [each.title for each in cases(World(1, 2, 3, 4, "a", "b", "c", "d", "e"))]

pytestmark = pytest.mark.skipif(
    KUBECTL is None, reason="`make binaries` builds the kubectl that is compared"
)


@pytest.fixture(scope="module")
def bench():
    with Bench.made(KUBECTL) as made:
        made.by_title = {each.title: each for each in made.cases()}
        yield made


@pytest.mark.parametrize("title", TITLES)
def test_our_request_is_kubectls(bench, title):
    case = bench.by_title[title]
    if case.pod and not can_be_a_pod():
        pytest.skip("no mount namespace can be made here")
    theirs, ours = bench.by_kubectl(case), bench.by_us(case)
    if not case.differs:
        compare = {"compression": False}
        assert ours.compared(**compare) == theirs.compared(**compare), ours.message + theirs.message
    assert bool(ours.message) == (not ours.sent), ours.message
    assert "Traceback" not in ours.message
    if not ours.sent:
        assert case.names in ours.message
