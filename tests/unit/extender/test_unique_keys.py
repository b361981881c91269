# SPDX-License-Identifier: Apache-2.0
"""Which bodies have a key twice."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_extender.call_body import CallBody
from gpupack_extender.errors import CallInvalid
from gpupack_extender.unique_keys import require_unique_keys

KNOWN = ["Pod", "NodeNames"]


def check(body):
    require_unique_keys(CallBody.of(body.encode()), KNOWN)


UNIQUE = [
    '{"Pod":{"a":1,"b":{"a":1}},"Nodes":null,"NodeNames":["a","b"]}',
    '{"Pod":{},"Nodes":null,"NodeNames":[]}',
    '{"NodeNames":["a"],"Pod":{"metadata":{"labels":{"a":"1","A":"2"}}}}',
    '{"Pod":{"text":",\\"NodeNames\\":[{\\"a\\":1,\\"a\\":2}]}"},"NodeNames":["a"]}',
    '{"Pod":{"x":[{"y":1,"NodeNames":["a"]},["b"]]}}',
    '{"Pod":{},"NodeNames":["]}","[",","]}',
    '{"Pod":{},"NodeNames":["a:"]}',
]
TWICE = [
    '{"Pod":{"a":1,"a":1},"Nodes":null,"NodeNames":["a"]}',
    '{"Pod":{"a":1,"\\u0061":1},"NodeNames":["a"]}',
    '{"Pod":{},"NodeNames":["a"],"NodeNames":["a"]}',
    '{"Pod":{},"NodeNames":["a"],"Pod":{},"x":["]}"]}',
    '{"Pod":{"x":[{"y":1,"y":2,"NodeNames":["a"]}]},"NodeNames":[]}',
    '{"Pod":{"a":1,"NodeNames":["b"],"a":["x"]},"z":["a"]}',
    '{"NodeNames":["a"],"x":[[[{"":1,"":2}]]],"Pod":{}}',
    '{"a":[{"b":1,"NodeNames":["x"]},["y"]],"a":[]}',
]


@pytest.mark.parametrize("body", UNIQUE)
def test_every_key_once_is_let_pass(body):
    check(body)


@pytest.mark.parametrize("body", TWICE)
def test_a_key_twice_is_refused(body):
    with pytest.raises(CallInvalid, match="stands twice"):
        check(body)


@pytest.mark.parametrize("key", ["pod", "POD", "nodeNames"])
def test_a_key_of_the_message_in_other_capitals_is_refused(key):
    with pytest.raises(CallInvalid, match="must be spelled"):
        check(f'{{"{key}":1}}')


def test_a_long_key_is_not_repeated_in_the_message():
    key = "k" * 10_000
    with pytest.raises(CallInvalid) as caught:
        check(f'{{"{key}":1,"{key}":2}}')
    assert len(str(caught.value)) < 200


def test_the_names_of_a_large_cluster_are_not_parsed_again():
    names = ",".join(f'"{"n" * 253}-{number}"' for number in range(20_000))
    check(f'{{"Pod":{{}},"Nodes":null,"NodeNames":[{names}]}}')


PIECES = ['"NodeNames":[', '"a":', '"b":', '"x"', "1", "{", "}", "[", "]", ",", "]}", '"]}"', " "]


class _Twice(Exception):
    pass


def has_a_key_twice(body):
    def see(pairs):
        if len(dict(pairs)) != len(pairs):
            raise _Twice
        return {}

    try:
        json.loads(body, object_pairs_hook=see)
    except _Twice:
        return True
    return False


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_cutting_the_names_out_hides_no_key(middle):
    body = ('{"a":1,"NodeNames":[' + middle + "]}").encode()
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        return
    try:
        found = has_a_key_twice(CallBody.of(body).without_names)
    except json.JSONDecodeError:
        return
    assert found == has_a_key_twice(body)
