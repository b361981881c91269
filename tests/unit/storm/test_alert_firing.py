# SPDX-License-Identifier: Apache-2.0
"""What a storm reads of the alerts of a real Prometheus."""

import shutil
import time

import pytest
import yaml
from alert_storm import firing
from harness import STATE, wait_for
from prometheus_run import started

RULE = {"alert": "Always", "expr": "vector(1)", "for": "1s"}


def test_the_start_of_an_alert_does_not_depend_on_the_query_time(tmp_path):
    if not shutil.which("prometheus", path=str(STATE / "bin")):
        pytest.skip("there is no Prometheus: run `make prometheus`")
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [RULE]}]}))
    configuration = {"global": {"evaluation_interval": "1s"}, "rule_files": [str(rules)]}
    began = time.time()
    with started(configuration, tmp_path) as shown:
        (seen,) = wait_for(
            lambda: firing(shown, began, time.time()) or None, seconds=30, what="the alert fires"
        )
        since = [firing(shown, began - back, time.time()) for back in (0.2, 0.5, 0.8, 100.3)]
    assert [(found.name, found.first) for (found,) in since] == [("Always", seen.first)] * 4
