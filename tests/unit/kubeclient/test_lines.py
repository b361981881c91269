# SPDX-License-Identifier: Apache-2.0
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_kubeclient.lines import HEAD_BYTES, LongLine, is_shallow, lines, texts


async def split(chunks, max_bytes):
    async def stream():
        for chunk in chunks:
            yield chunk

    return [line async for line in lines(stream(), max_bytes=max_bytes)]


@given(st.lists(st.binary(max_size=9)), st.integers(1, 9))
async def test_lines_are_the_same_however_the_stream_is_cut(parts, length):
    stream = b"\n".join(parts)
    chunks = [stream[start : start + length] for start in range(0, len(stream), length)]
    assert await split(chunks, 10**6) == [line for line in stream.split(b"\n") if line]


async def test_a_line_that_is_too_long_is_cut_and_the_next_lines_are_read():
    found = await split([b"a\nbb", b"bb", b"b\ncc\n", b"dddd"], 3)
    assert found == [b"a", LongLine(b"bbbb", 5), b"cc", LongLine(b"dddd", 4)]


async def test_only_the_beginning_of_a_long_line_is_held():
    (line,) = await split([b"x" * 1000] * 10_000, 1 << 20)
    assert (len(line.head), line.size) == (HEAD_BYTES, 10_000_000)


EVENT = {
    "type": "MODIFIED",
    "object": {
        "metadata": {
            "annotations": {"note": '"}, "name": "other"', "name": "another", "": "{["},
            "ownerReferences": [{"name": "owner", "uid": "u-2"}, ["x"]],
            "generation": 3,
            "name": 'a"b',
            "uid": "u-1",
        },
        "spec": {"name": "spec", "metadata": {"name": "deep"}},
    },
}
PATH = ("object", "metadata", "name")


@pytest.mark.parametrize("indent", [None, 2])
def test_texts_are_found_by_their_path_and_no_value_is_taken_for_a_key(indent):
    found = texts(json.dumps(EVENT, indent=indent).encode())
    assert (found[("type",)], found[PATH]) == ("MODIFIED", 'a"b')
    assert found[("object", "metadata", "uid")] == "u-1"


def test_an_end_within_a_text_ends_the_search_whatever_the_text_holds():
    forged = json.dumps('"}},"object":{"metadata":{"name":"forged"').removesuffix('"')
    head = '{"type":"ADDED","object":{"metadata":{"annotations":{"a":' + forged
    assert texts(head.encode()) == {("type",): "ADDED"}


def test_depth_costs_nothing():
    deep = b'{"type":"ADDED","object":{"spec":' + b'{"a":' * 10_000
    assert texts(deep) == {("type",): "ADDED"}


def test_texts_below_the_metadata_are_not_stored():
    deep = b'{"type":"ADDED","object":{"a":' + b'{"a":"","b":' * 5_000
    tracemalloc.start()
    found = texts(deep)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.keys() <= {("type",), ("object", "a", "a")}
    assert most < 1 << 20


@pytest.mark.parametrize("levels", [1, 3, 50])
def test_depth_is_that_of_objects_and_lists_and_not_of_texts(levels):
    deep = b'{"a":[' * levels + b'"}}]]{{[["' + b"]}" * levels
    assert is_shallow(deep, levels=2 * levels)
    assert not is_shallow(deep, levels=2 * levels - 1)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_depth_is_what_walking_the_object_finds(tree):
    def depth(node):
        inner = node.values() if isinstance(node, dict) else node
        return 0 if isinstance(node, str) else 1 + max(map(depth, inner), default=0)

    text = json.dumps(tree).encode()
    assert is_shallow(text, levels=depth(tree))
    assert depth(tree) == 0 or not is_shallow(text, levels=depth(tree) - 1)
