# SPDX-License-Identifier: Apache-2.0
"""The REST API says what its OpenAPI document promises, whatever it is sent; `make fuzz-api` is the
long one.
"""

import json

import pytest
import rest_api
from rest_clients import forwarded, viewer

SEED = 20261124
SECONDS = 30


@pytest.mark.slow
def test_answers_to_random_calls_conform_to_the_openapi_document(kube, system):
    # One job that waits for GPUs for eight seconds, not more.
    kube.submit(*rest_api.quotas(jobs=1))
    with viewer(kube, *rest_api.ROLES) as token, forwarded(system) as (url, ca):
        report = rest_api.fuzz(url, ca, token, seed=SEED, seconds=SECONDS)
    assert not report["broken"], report.get("said") or json.dumps(report)
    assert report["calls"] > 100, json.dumps(report)
