# SPDX-License-Identifier: Apache-2.0
"""Selectors judged by an index of labels, and by the book: node by node."""

from hypothesis import given
from hypothesis import strategies as st

from gpupack_placement import Node, NodeSelector, Operator, Requirement, Term
from gpupack_placement.masks import LabelIndex, SelectorMasks

KEYS = st.sampled_from(["zone", "disk", "age", "metadata.name"])
VALUES = st.sampled_from(["a", "b", "7", "12", "-3", "x7", ""])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)


@st.composite
def requirements(draw, keys=KEYS):
    operator = draw(st.sampled_from(Operator))
    if operator in {Operator.GT, Operator.LT}:
        return Requirement(draw(keys), operator, (draw(st.sampled_from(["0", "7", "11"])),))
    if operator in {Operator.EXISTS, Operator.DOES_NOT_EXIST}:
        return Requirement(draw(keys), operator)
    return Requirement(draw(keys), operator, tuple(draw(st.lists(VALUES, min_size=1, max_size=3))))


TERMS = st.builds(
    Term,
    st.lists(requirements(), max_size=2).map(tuple),
    st.lists(requirements(st.just("metadata.name")), max_size=1).map(tuple),
)
SELECTORS = st.builds(
    NodeSelector,
    st.dictionaries(KEYS, VALUES, max_size=2).map(lambda d: tuple(d.items())),
    st.none() | st.lists(TERMS, max_size=3).map(tuple),
)


def built(labels):
    return [None if each is None else node(row, each) for row, each in enumerate(labels)]


def node(row, labels):
    return Node("ab7"[row % 3] * (1 + row // 3), (), labels=labels)


def by_the_book(selector, nodes):
    return [each is not None and selector.matches(each) for each in nodes]


@given(st.lists(st.none() | LABELS, max_size=6), SELECTORS)
def test_the_index_matches_what_the_selector_matches(labels, selector):
    nodes = built(labels)
    found = LabelIndex(nodes).matches(selector, len(nodes))
    assert found.tolist() == by_the_book(selector, nodes)


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.none() | LABELS), max_size=6)


@given(st.lists(st.none() | LABELS, min_size=4, max_size=4), CHANGES, st.lists(SELECTORS))
def test_masks_follow_labels_as_nodes_change(labels, changes, selectors):
    nodes, masks = built(labels), SelectorMasks()
    for row, changed in [(0, labels[0]), *changes]:
        nodes[row] = None if changed is None else node(row, changed)
        masks.correct(row, nodes[row])
        for selector in selectors:
            assert masks.of(selector, nodes).tolist() == by_the_book(selector, nodes)


def large(number):
    terms = [Term((Requirement("zone", Operator.IN, (f"z{number}-{n}",)),)) for n in range(512)]
    return NodeSelector((), (*terms, Term((Requirement("disk", Operator.EXISTS),))))


def test_a_large_selector_is_judged_without_looking_at_each_node_for_each_term(monkeypatch):
    looked = []
    monkeypatch.setattr(NodeSelector, "matches", lambda *_: looked.append(1))
    nodes = [Node(f"n{n}", (), labels={"disk": "ssd", "host": str(n)}) for n in range(1000)]
    masks = SelectorMasks()
    assert masks.of(large(0), nodes).all()
    masks.correct(0, Node("n0", (), labels={"host": "0"}))
    nodes[0] = Node("n0", (), labels={"host": "0"})
    assert masks.of(large(0), nodes).tolist() == [False] + [True] * 999
    assert looked == []


def test_labels_without_end_and_selectors_without_end_are_not_kept():
    nodes, masks = [Node("a", (), labels={})], SelectorMasks()
    for number in range(5_000):
        nodes[0] = Node("a", (), labels={f"key-{number}": "x", "stamp": str(number)})
        masks.correct(0, nodes[0])
        masks.of(NodeSelector((("stamp", str(number)),)), nodes)
    assert len(masks._index._rows) == 2
    assert len(masks._index._rows["stamp"]) == 1
    assert len(masks._masks) == 64


def test_selectors_are_kept_within_so_much_text():
    masks = SelectorMasks()
    for number in range(20):
        masks.of(NodeSelector((("k", str(number) * (1 << 20)),)), [])
    assert sum(selector.text for selector in masks._masks) <= 4 << 20
    assert masks._text == sum(selector.text for selector in masks._masks)
