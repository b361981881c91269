# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_cost import Prices, Tariff, Tariffs, model_label, parse_label
from gpupack_cost.errors import InvalidPrices
from gpupack_devices.units import MiB


@pytest.mark.parametrize(
    ("model", "memory", "price"),
    [
        ("NVIDIA A100-SXM4-80GB", 81_920, 2.0),
        ("NVIDIA A100-SXM4-40GB", 40_536, 1.5),
        ("A100", 81_920, 2.0),
        ("A100", 40_536, 1.5),
        ("NVIDIA H200", 143_771, 4.0),
        ("Tesla T4", 15_360, 0.5),
        ("", 1, 0.5),
    ],
)
def test_a_model_has_the_price_of_the_longest_name_that_it_matches(model, memory, price):
    prices = Prices({"A100": 1.5, "A100-80GB": 2.0, "H200-141GB": 4.0, "*": 0.5})
    assert prices.of(model_label(model, MiB(memory))) == price


def test_without_a_price_for_all_others_a_model_may_have_none():
    assert Prices({"H100": 3.0}).of("Tesla T4") is None


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_price_is_a_number_of_0_or_more(price):
    with pytest.raises(InvalidPrices, match="write a number, 0 or more"):
        Prices({"H100": price})


@pytest.mark.parametrize("name", ["2 x H100", "nvidia.com/gpu", "--", ""])
def test_a_name_that_is_no_model_is_refused(name):
    with pytest.raises(InvalidPrices, match=r"or \* for all others"):
        Prices({name: 1.0})


@pytest.mark.parametrize("memory", [40_536, 81_559, 196_592])
def test_a_label_tells_the_memory_that_the_name_lacks(memory):
    model, read = parse_label(model_label("AMD Instinct MI300X", MiB(memory)))
    assert model == "AMD Instinct MI300X"
    assert read == pytest.approx(memory, rel=0.02)


def test_what_was_used_while_prices_were_in_another_currency_has_no_cost():
    both = Tariffs.of(
        [Tariff(100.0, "EUR", Prices({"*": 2})), Tariff(0.0, "USD", Prices({"*": 1}))]
    )
    assert both.currency == "EUR"
    assert [both.number_at(moment) for moment in (-5, 99, 100)] == [0, 0, 1]
    assert (both.price(0, "H100"), both.price(1, "H100")) == (None, 2)
