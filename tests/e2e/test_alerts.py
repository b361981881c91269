# SPDX-License-Identifier: Apache-2.0
"""The storm of `make test-alerts`, of two breaks and with rules that wait twenty times less."""

import pytest
from alert_rules import faster
from alert_storm import AlertStorm
from harness import cluster_kind
from prometheus_run import forget_account, prometheus

SPEED = 20.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(
        cluster_kind() == "kind", reason="pods of kind cannot be reached from this host"
    ),
]


def test_two_faults_fire_only_their_alerts(*, system, cluster, kube, judged, tmp_path, tell):
    with prometheus(system, tmp_path, rules=faster(SPEED, tmp_path)) as shown:
        report = AlertStorm(cluster, system, kube, judged, shown, SPEED)(
            seconds=150, seed=3, most=2
        )
    forget_account(system)
    tell(str(report))
    assert report.verdict.silent == ()
    assert report.verdict.noise == ()
