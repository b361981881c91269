# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_crds.errors import ResultUnreadable
from gpupack_crds.results import read_result


@pytest.mark.parametrize("message", ["", "  \n"])
def test_a_silent_container_has_no_result(message):
    assert read_result(message) is None


def test_a_result_is_read_with_its_metrics():
    message = (
        '{"schema":"gpupack.dev/result/v1","workload":"matmul","headline":"1 TFLOP/s",'
        '"verified":true,"simulated":true,"metrics":{"tflops":1.0,"dtype":"fp32"},"extra":1}'
    )
    result = read_result(message)
    assert result is not None
    assert (result.headline, result.metrics) == ("1 TFLOP/s", {"tflops": 1.0, "dtype": "fp32"})


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, 1e30, 1.7976931348623157e308])
def test_a_figure_may_be_whatever_number_the_api_server_takes(number):
    message = f'{{"schema":"gpupack.dev/result/v1","metrics":{{"x":{number}}}}}'
    assert read_result(message).metrics == {"x": number}


@pytest.mark.parametrize(
    "message",
    [
        "Segmentation fault",
        "{",
        "[]",
        "null",
        "{}",
        '{"schema":"gpupack.dev/result/v2"}',
        '{"schema":"gpupack.dev/result/v1","metrics":{"nested":{}}}',
        '{"schema":"gpupack.dev/result/v1","headline":"' + "x" * 65 + '"}',
        '{"schema":"gpupack.dev/result/v1","metrics":{"x":1' + "0" * 400 + "}}",
        '{"schema":"gpupack.dev/result/v1","metrics":{"x":1' + "0" * 30 + "}}",
        '{"schema":"gpupack.dev/result/v1","metrics":{"x":-9223372036854775809}}',
        '{"schema":"gpupack.dev/result/v1","metrics":{"x":1e400}}',
        '{"schema":"gpupack.dev/result/v1","metrics":{"x":NaN}}',
        "\x00\xff",
        "[" * 4000,
        '{"x":' + "[" * 4000,
    ],
)
def test_any_other_message_is_unreadable_and_quoted(message):
    with pytest.raises(ResultUnreadable, match=r"gpupack\.dev/result/v1"):
        read_result(message)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("Segmentation fault", "it is not valid JSON; write one JSON object, or nothing"),
        ("{}", "Object missing required field schema"),
        ('{"schema":"gpupack.dev/result/v1","headline":1}', "headline: Expected str, got int"),
        ('{"x":' + "[" * 4000, "it is nested too deeply"),
    ],
)
def test_the_error_says_in_words_what_is_wrong(message, says):
    with pytest.raises(ResultUnreadable) as refused:
        read_result(message)
    assert str(refused.value).endswith(f"gpupack.dev/result/v1: {says}")
