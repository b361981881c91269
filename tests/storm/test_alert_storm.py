# SPDX-License-Identifier: Apache-2.0
"""Alerts fire for what was broken and for nothing else: `make test-alerts`.

ALERT_STORM_SECONDS is how long it goes on; of an hour rules wait as they do in a cluster, of less
they wait ten times less.
"""

import os

from alert_rules import faster
from alert_storm import AlertStorm
from prometheus_run import forget_account, prometheus

SECONDS = float(os.environ.get("ALERT_STORM_SECONDS", "3600"))
SEED = int(os.environ.get("ALERT_STORM_SEED", "1"))
SPEED = 1.0 if SECONDS >= 3600 else 10.0


def test_alerts_fire_for_what_was_broken_and_for_nothing_else(
    *, system, cluster, kube, judged, fresh, tmp_path, tell
):
    with prometheus(system, tmp_path, rules=faster(SPEED, tmp_path)) as shown:
        storm = AlertStorm(cluster, system, kube, judged, shown, SPEED)
        report = storm(seconds=SECONDS, seed=SEED)
    forget_account(system)
    tell(str(report))
    assert report.verdict.silent == ()
    assert report.verdict.noise == ()
