# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path

from processes import run_process

STORM = Path(__file__).parents[3] / "helpers" / "host_storm.py"


def test_of_fifty_processes_that_are_killed_at_random_none_gets_anothers_gpu_and_none_is_lost():
    """A short one; five seeds of a minute each: python tests/helpers/host_storm.py."""
    done = run_process([sys.executable, STORM, "--seeds", "1", "--seconds", "6"])
    outcome = json.loads(done.stdout)
    assert done.returncode == 0, outcome
    assert outcome["refused_by_judge"] == []
    assert outcome["killed"] > 50
