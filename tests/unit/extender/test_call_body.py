# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_extender.call_body import SCANNED_BYTES, CallBody
from gpupack_extender.errors import CallTooLarge


def test_only_the_part_without_node_names_is_limited():
    names = b'"' + b"n" * SCANNED_BYTES + b'"'
    CallBody.of(b'{"Pod":{},"NodeNames":[' + names + b"]}").require_bounded()
    with pytest.raises(CallTooLarge):
        CallBody.of(b'{"Pod":' + names + b',"NodeNames":[]}').require_bounded()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ('{"Pod":{},"Nodes":null,"NodeNames":["a","b"]}', ["a", "b"]),
        ('{"Pod":{},"Nodes":null,"NodeNames":[]}', []),
        ('{"Pod":{"x":",\\"NodeNames\\":[]}"},"NodeNames":["a"]}', ["a"]),
        ('{"Pod":{"a":1,"NodeNames":["b"]},"z":["a"]}', None),
        ('{"Pod":{"a":1,"NodeNames":["b"]},["a"]}', None),
        ('{"Pod":{},"NodeNames":[1]}', None),
        ('{"Pod":{}}', None),
    ],
)
def test_node_names_are_read_without_the_pod(body, names):
    assert CallBody.of(body.encode()).node_names() == names
