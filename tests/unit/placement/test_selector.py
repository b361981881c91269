# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import node

from gpupack_placement import (
    InvalidSelector,
    NodeSelector,
    Operator,
    Requirement,
    Term,
    Toleration,
)

NODE = node("a", labels={"zone": "z1", "disks": "4", "odd": "x"})


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", Operator.IN, ("z1", "z2"), True),
        ("zone", Operator.IN, ("z2",), False),
        ("none", Operator.IN, ("z1",), False),
        ("zone", Operator.NOT_IN, ("z1",), False),
        ("none", Operator.NOT_IN, ("z1",), True),
        ("zone", Operator.EXISTS, (), True),
        ("none", Operator.EXISTS, (), False),
        ("zone", Operator.DOES_NOT_EXIST, (), False),
        ("none", Operator.DOES_NOT_EXIST, (), True),
        ("disks", Operator.GT, ("3",), True),
        ("disks", Operator.GT, ("4",), False),
        ("disks", Operator.LT, ("5",), True),
        ("odd", Operator.LT, ("5",), False),
        ("none", Operator.GT, ("0",), False),
    ],
)
def test_requirements_match_as_in_kubernetes(key, operator, values, matches):
    term = Term(labels=(Requirement(key, operator, values),))
    assert NodeSelector(terms=(term,)).matches(NODE) is matches


def test_terms_are_alternatives_and_requirements_of_a_term_are_not():
    zone = Requirement("zone", Operator.IN, ("z1",))
    other = Requirement("zone", Operator.IN, ("z2",))
    assert NodeSelector(terms=(Term((other,)), Term((zone,)))).matches(NODE)
    assert not NodeSelector(terms=(Term((zone, other)),)).matches(NODE)


def test_a_node_can_be_selected_by_name():
    named = Requirement("metadata.name", Operator.IN, ("a",))
    assert NodeSelector(terms=(Term(fields=(named,)),)).matches(NODE)
    assert not NodeSelector(terms=(Term(fields=(named,)),)).matches(node("b"))


def test_empty_terms_match_nothing_and_no_affinity_matches_all():
    assert not NodeSelector(terms=()).matches(NODE)
    assert not NodeSelector(terms=(Term(),)).matches(NODE)
    assert NodeSelector().matches(NODE)


def test_node_selector_labels_and_affinity_must_both_match():
    odd = Term((Requirement("odd", Operator.EXISTS),))
    assert NodeSelector((("zone", "z1"),), (odd,)).matches(NODE)
    assert not NodeSelector((("zone", "z2"),), (odd,)).matches(NODE)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Requirement("k", Operator.IN),
        lambda: Requirement("k", Operator.EXISTS, ("v",)),
        lambda: Requirement("k", Operator.GT, ("many",)),
        lambda: Requirement("k", Operator.LT, ("1", "2")),
        lambda: Term(fields=(Requirement("spec.x", Operator.EXISTS),)),
        Toleration,
    ],
)
def test_selectors_that_kubernetes_would_refuse_are_rejected(build):
    with pytest.raises(InvalidSelector):
        build()
