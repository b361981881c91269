# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from gpupack_placement import (
    DemandForecast,
    InvalidSnapshot,
    Request,
    RequestMix,
    Share,
    Slices,
    dump_forecast,
    load_forecast,
)

SHARE = Request(share=Share(500, 8192), models=("T4",), cpu=4000, memory=1024)
LARGE = Request(gpus=1, min_memory=40_000, cpu=1000)
FORECAST = DemandForecast(RequestMix.of([(LARGE, 3), (SHARE, 1)]), churn=0.5)


def test_what_is_written_reads_back_as_it_was():
    assert load_forecast(json.loads(json.dumps(dump_forecast(FORECAST)))) == FORECAST


def test_of_slices_is_written_what_policies_see_of_them():
    forecast = DemandForecast(RequestMix.of([(Request(slices=Slices("1g.10gb", 2), cpu=4000), 1)]))
    assert load_forecast(dump_forecast(forecast)).mix == RequestMix.of(
        [(Request(gpus=0, cpu=4000), 1)]
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "schema: the field is missing"),
        ({"schema": 2}, "schema: 2 is not the version that can be read, 1"),
        ({"schema": 1}, "demands: the field is missing"),
        ({"schema": 1, "mix": []}, "mix: there is no such field"),
        ({"schema": 1, "demands": [{"gpus": 1}]}, r"demands\[0\].count: the field is missing"),
        (
            {"schema": 1, "demands": [{"count": 0, "gpus": 1}]},
            r"demands\[0\].count: 0 is not positive",
        ),
        (
            {"schema": 1, "demands": [{"count": 1}]},
            r"demands\[0\]: ask for exactly one of",
        ),
        (
            {"schema": 1, "demands": [{"count": 1, "shareMilli": 1000}]},
            r"demands\[0\].shareMilli: 1000 is above 999",
        ),
        (
            {"schema": 1, "demands": [{"count": 1, "gpus": 1, "models": "T4"}]},
            r"demands\[0\].models: 'T4' is not a list",
        ),
        (
            {"schema": 1, "demands": [{"count": 1, "gpus": 1, "models": [""]}]},
            r"demands\[0\].models\[0\]: '' is not a text, or empty",
        ),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_path_and_value(document, message):
    with pytest.raises(InvalidSnapshot, match=message):
        load_forecast(document)
