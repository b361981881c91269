# SPDX-License-Identifier: Apache-2.0
"""Which tests of the cluster run in parallel, and which run alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from fixtures import pytest_collection_modifyitems as mark

ROOT = Path(__file__).parents[3]


class Item:
    """What pytest has collected, as far as it matters here."""

    def __init__(self, *fixturenames):
        self.fixturenames = fixturenames
        self.marks = set()

    def add_marker(self, marker):
        self.marks.add(marker.name)

    def get_closest_marker(self, name):
        return name if name in self.marks else None


def test_a_test_that_needs_an_idle_cluster_runs_alone():
    parallel, alone = Item("kube"), Item("kube", "idle")
    mark([parallel, alone])
    assert (parallel.marks, alone.marks) == ({"e2e"}, {"e2e", "alone"})


def test_slow_tests_are_started_first_and_the_others_keep_their_order():
    first, second, slow = Item(), Item(), Item()
    slow.marks.add("slow")
    items = [first, second, slow]
    mark(items)
    assert items == [slow, first, second]


def test_all_tests_that_make_faults_or_fill_the_cluster_run_alone():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not alone"]
    folders = ("tests/e2e/edges", "tests/storm", "tests/truth")
    done = subprocess.run(
        [*command, *folders], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    assert "no tests collected" in done.stdout
