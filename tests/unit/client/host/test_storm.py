# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path

from processes import run_process

STORM = Path(__file__).parents[3] / "helpers" / "host_storm.py"


def test_gpus_are_neither_shared_nor_lost_among_fifty_killed_processes():
    """A short run; for five seeds of a minute each: python tests/helpers/host_storm.py."""
    done = run_process([sys.executable, STORM, "--seeds", "1", "--seconds", "6"])
    outcome = json.loads(done.stdout)
    assert done.returncode == 0, outcome
    assert outcome["refused_by_judge"] == []
    assert outcome["killed"] > 50
