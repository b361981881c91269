# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from gpupack_kubeclient import __version__
from gpupack_kubeclient.environment import Environment, SettingsInvalid, error_text


def environment(**variables):
    return Environment(variables)


def test_a_variable_that_is_set_to_nothing_counts_as_not_set():
    assert environment(A="").path("A", "/a") == pathlib.Path("/a")
    with pytest.raises(SettingsInvalid, match="A is not set; set it to a name"):
        environment(A="").required("A", "a name")


@pytest.mark.parametrize("text", ["0", "9", "-1", "1.5", "soon"])
def test_a_number_outside_its_bounds_is_named_with_them(text):
    with pytest.raises(SettingsInvalid, match=f"A='{text}' is not valid; set it to .* 1 to 8"):
        environment(A=text).whole("A", 1, most=8)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(SettingsInvalid, match="seconds, more than 0"):
        environment(A=text).seconds("A", 1.0)


def test_a_time_has_its_bounds():
    assert environment(A="75").seconds("A", 90.0, least=75, most=80) == 75
    for text in ("74", "81"):
        with pytest.raises(SettingsInvalid, match="seconds, 75 or more, at most 80"):
            environment(A=text).seconds("A", 90.0, least=75, most=80)


def test_a_choice_is_one_of_few():
    assert environment(A="b").choice("A", ("a", "b"), "a") == "b"
    with pytest.raises(SettingsInvalid, match="A='c' is not valid; set it to one of a, b"):
        environment(A="c").choice("A", ("a", "b"), "a")


def test_the_log_level_is_read_in_any_case():
    assert environment().log_level() == "INFO"
    assert environment(GPUPACK_LOG_LEVEL="debug").log_level() == "DEBUG"


def test_settings_of_another_chart_are_named_with_both_versions():
    error = SettingsInvalid("GPUPACK_QUEUE is not valid: Object contains unknown field `x`")
    assert error_text(error, {"GPUPACK_CHART_VERSION": "9.9.9"}) == (
        f"{error}; the configuration comes from chart 9.9.9, and this image is version "
        f"{__version__}: set image.tag to an image of version 9.9.9, or install chart "
        f"{__version__}"
    )


@pytest.mark.parametrize("variables", [{}, {"GPUPACK_CHART_VERSION": __version__}])
def test_settings_of_the_same_chart_are_named_without_a_version(variables):
    assert error_text(SettingsInvalid("A is not set"), variables) == "A is not set"
