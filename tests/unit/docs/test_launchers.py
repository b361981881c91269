# SPDX-License-Identifier: Apache-2.0
"""The manifests of examples/launchers are those of the page, and their scripts are Python."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "your-own-image.md").read_text()
EXAMPLES = sorted((ROOT / "examples" / "launchers").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_launcher_has_a_paragraph_and_a_manifest_that_runs_its_own_script(path):
    job, scripts = yaml.safe_load_all(path.read_text())
    assert job["metadata"]["name"] == scripts["metadata"]["name"] == path.stem
    pod = job["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    assert volume["configMap"]["name"] == path.stem
    assert "/scripts/train.py" in container["command"][-1]
    compile(scripts["data"]["train.py"], path.name, "exec")
    assert f"(../examples/launchers/{path.name})" in PAGE
