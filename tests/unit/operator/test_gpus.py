# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_operator.decision import gpus

SHARE = {"percent": 40, "memory": "10Gi"}


@pytest.mark.parametrize(
    ("spec", "column", "phrase"),
    [
        ({"gpus": 1}, "1", "1 GPU"),
        ({"gpus": 4, "workers": 2}, "8", "8 GPUs"),
        ({"gpus": 1, "resourceName": "nvidia.com/gpu"}, "1", "1 GPU"),
        ({"mig": "1g.18gb", "gpus": 1}, "1x1g.18gb", "1 MIG slice 1g.18gb"),
        ({"mig": "1g.18gb", "gpus": 2, "workers": 2}, "4x1g.18gb", "4 MIG slices 1g.18gb"),
        ({"share": SHARE}, "40%", "40% of a GPU"),
        ({"share": SHARE, "workers": 2}, "2x40%", "2x40% of a GPU"),
    ],
)
def test_whole_gpus_are_counted_and_shares_are_named(build, spec, column, phrase):
    found = build.gpujob(**spec).spec
    assert (gpus.column(found), gpus.phrase(found)) == (column, phrase)
