# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_crds import quantity
from gpupack_crds.errors import QuantityInvalid


@pytest.mark.parametrize(
    ("text", "mib"),
    [("30Gi", 30 * 1024), ("1", 1), ("0", 0), ("1Mi", 1), ("1M", 1), (1048577, 2), ("1.5e9", 1431)],
)
def test_memory_is_counted_in_mib_and_never_too_small(text, mib):
    assert quantity.mebibytes(text) == mib


@pytest.mark.parametrize(("text", "milli"), [("500m", 500), (2, 2000), ("1.5", 1500), ("1u", 1)])
def test_cpu_is_counted_in_thousandths_of_a_core(text, milli):
    assert quantity.milli_cpu(text) == milli


@pytest.mark.parametrize(
    "text", ["", "Gi", "-1Gi", "1Zi", "1K", "1ki", " 1", "1_0", "one", "NaN", "Infinity", "1e400"]
)
def test_an_invalid_quantity_is_refused_with_its_text(text):
    with pytest.raises(QuantityInvalid, match="quantity"):
        quantity.mebibytes(text)


def test_half_a_device_is_refused():
    with pytest.raises(QuantityInvalid, match="whole number"):
        quantity.count("500m")
