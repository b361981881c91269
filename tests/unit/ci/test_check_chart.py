# SPDX-License-Identifier: Apache-2.0
"""Messages of check-chart on a host without helm or kubeconform."""

import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[3] / ".ci/check-chart"


@pytest.mark.parametrize("missing", ["helm", "kubeconform"])
def test_a_chart_that_cannot_be_checked_does_not_pass(tmp_path, missing):
    binaries = tmp_path / ".dev/bin"
    binaries.mkdir(parents=True)
    for tool in {"helm", "kubeconform"} - {missing}:
        (binaries / tool).write_text("#!/bin/sh\n")
        (binaries / tool).chmod(0o755)
    done = subprocess.run([CHECK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"cannot check the chart: .dev/bin/{missing} is missing; `make binaries` builds it"
    ]
