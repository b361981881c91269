# SPDX-License-Identifier: Apache-2.0
"""What checksums of a product notice, and what they let pass."""

import math

import pytest
import torch

from gpupack_workloads.reference.freivalds import (
    ROWS_AT_ONCE,
    Strips,
    checksums_of_product,
    compare,
    random_signs,
    strip_width,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Product:
    """A B of random numbers, and what its checksums must be."""

    def __init__(self, *, rows=96, terms=64, columns=80, dtype=torch.float32, whole=False):
        chance = torch.Generator(DEVICE).manual_seed(1)
        shapes = (rows, terms), (terms, columns)
        a, b = (torch.randn(shape, generator=chance, device=DEVICE).to(dtype) for shape in shapes)
        if whole:
            a, b = a.round(), b.round()
        self.c = (a.double() @ b.double()).to(dtype)
        self.strips = Strips(random_signs(columns, chance), strip_width(columns))
        self.expected = checksums_of_product(a, b, self.strips)

    def compared(self, **how):
        return compare(self.c, self.expected, self.strips, **how)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_right_product_agrees(dtype):
    agreement = Product(dtype=dtype).compared()
    assert agreement.holds
    assert agreement.error > 0


@pytest.mark.parametrize("place", [(0, 0), (95, 79), (50, 33)])
def test_an_element_that_is_wrong_by_what_a_lost_term_is_worth_is_noticed(place):
    product = Product()
    product.c[place] += 0.01
    assert not product.compared().holds


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("row", [1, ROWS_AT_ONCE + 1])
def test_what_is_no_number_is_found_in_every_row(wrong, row):
    product = Product(rows=ROWS_AT_ONCE + 64)
    product.c[row, 1] = wrong
    assert not product.compared().holds


def test_two_columns_that_changed_places_are_noticed():
    product = Product()
    product.c[:, [3, 70]] = product.c[:, [70, 3]]
    assert not product.compared().holds


def test_sums_that_are_exact_must_be_exact():
    assert not Product().compared(roundings=0).holds
    whole = Product(dtype=torch.float16, whole=True)
    assert whole.compared(roundings=0).holds
    whole.c[5, 5] += 1
    assert not whole.compared(roundings=0).holds


def test_a_sum_that_was_rounded_on_its_way_may_be_further_off():
    product = Product(dtype=torch.bfloat16)
    once, often = product.compared(), product.compared(roundings=4)
    assert often.bound > once.bound


@pytest.mark.parametrize(("columns", "width"), [(8192, 32), (80, 16), (7, 1)])
def test_a_strip_is_as_wide_as_divides_the_columns(columns, width):
    assert strip_width(columns) == width


def test_some_columns_have_the_signs_of_all():
    product = Product()
    part = product.strips.of(slice(32, 64))
    assert torch.equal(part.signs, product.strips.signs[32:64])
