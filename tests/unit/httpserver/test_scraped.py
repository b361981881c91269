# SPDX-License-Identifier: Apache-2.0
"""The texts in recordings/ are written by DCGM exporter's documented format, not recorded."""

import pathlib
import time

import pytest

from gpupack_agent.dcgm.fields import NAMES
from gpupack_httpserver.scraped import LINE_CHARACTERS, figures

RECORDINGS = pathlib.Path(__file__).parents[1] / "agent/recordings"
FIRST, SECOND = (f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in (0, 1))
XID = "DCGM_FI_DEV_XID_ERRORS"


def read(name):
    return figures((RECORDINGS / name).read_text(), NAMES)


def line(value, *, name=XID, uuid="GPU-0", more=""):
    return f'{name}{{gpu="0",UUID="{uuid}"{more}}} {value}\n'


def test_figures_are_read_by_gpu_and_field():
    figures = read("dcgm_exporter.prom")
    assert sorted(figures) == [FIRST, SECOND]
    assert figures[FIRST]["DCGM_FI_PROF_SM_ACTIVE"] == pytest.approx(0.913377)
    assert figures[SECOND] | {} != figures[FIRST]
    assert (
        figures[SECOND][XID],
        figures[SECOND]["DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"],
    ) == (
        79,
        7,
    )


def test_fields_that_were_not_requested_are_not_read():
    assert {name for of_gpu in read("dcgm_exporter.prom").values() for name in of_gpu} <= NAMES


def test_figures_of_mig_slices_say_nothing_about_the_whole_gpu():
    figures = read("dcgm_exporter_slices.prom")
    assert "DCGM_FI_PROF_SM_ACTIVE" not in figures[FIRST]
    assert figures[FIRST]["DCGM_FI_DEV_SM_CLOCK"] == 1410


def test_of_a_gpu_that_pods_share_the_largest_figure_counts():
    text = line(0, more=',pod="a"') + line(79, more=',pod="b"') + line(0, more=',pod="c"')
    assert figures(text, NAMES) == {"GPU-0": {XID: 79}}


def test_a_line_that_cannot_be_read_spoils_itself_alone():
    broken = f'{XID}{{UUID="GPU-1 5\n{XID}{{UUID=}} \n{XID} 5\n{XID}{{UUID="GPU-2"}} five\n'
    assert figures(broken + line(48), NAMES) == {"GPU-0": {XID: 48}}


@pytest.mark.parametrize(
    "value",
    ["NaN", "+Inf", "-1", "2147483632", "9223372036854775794", "140737488355328.0", "1e400"],
)
def test_placeholders_for_missing_values_are_ignored(value):
    assert figures(line(value), NAMES) == {}


def test_a_line_that_is_too_long_is_passed_over():
    pod = "x" * LINE_CHARACTERS
    assert figures(line(79, more=f',pod="{pod}"'), NAMES) == {}


@pytest.mark.parametrize(
    "hostile",
    [
        "\\" * (4 << 20),
        (XID + "{" + 'a="' + "\\" * 4000 + "\n") * 1000,
        (XID + "{" + "a=," * 1300 + "\n") * 1000,
        "".join(line(1, uuid=f"GPU-{n}") for n in range(60_000)),
    ],
    ids=["one line", "escapes", "labels", "gpus"],
)
def test_a_hostile_answer_takes_a_bounded_time(hostile):
    at = time.process_time()
    figures(hostile[: 4 << 20], NAMES)
    assert time.process_time() - at < 10
