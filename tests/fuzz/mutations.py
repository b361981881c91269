# SPDX-License-Identifier: Apache-2.0
"""Ways to spoil a valid call: as a tree of JSON, or as bytes.

Each takes the call's own random generator, so that a number and a seed make the same bytes again.
"""

import json
import re

NASTY_TEXTS = [
    "",
    " ",
    "\x00",
    "\u202e",
    "ü" * 300,
    "a" * 3000,
    "../../../etc/passwd",
    "team/pods/p/binding",
    "%2e%2e%2f",
    "-1",
    "1e400",
    "1E-400",
    "0x10",
    "NaN",
    "Infinity",
    "9" * 5000,
    "0." + "0" * 5000 + "1",
    "1Ei",
    "9223372036854775807",
    "9223372036854775808Ei",
    "1_000",
    "\u0661",
    "true",
    "null",
    "{}",
    "[]",
    "2026-13-45T99:99:99Z",
    "gpupack.dev/gpu",
]
NASTY_NUMBERS = [
    -1,
    0,
    1,
    99,
    100,
    101,
    1.5,
    -0.0,
    1e308,
    5e-324,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**30,
    10**400,
]
KNOWN_KEYS = [
    "metadata",
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "spec",
    "containers",
    "initContainers",
    "resources",
    "limits",
    "requests",
    "gpupack.dev/gpu",
    "gpupack.dev/gpu-share",
    "gpupack.dev/gpu-percent",
    "gpupack.dev/gpu-memory",
    "nvidia.com/gpu",
    "cpu",
    "memory",
    "nodeSelector",
    "affinity",
    "tolerations",
    "share",
    "spread",
    "policy",
    "resourceName",
    "Pod",
    "NodeNames",
    "nodenames",
    "PodUID",
]


def nasty(chance):
    """Draw any JSON value in place of another."""
    pick = chance.randrange(8)
    if pick < 3:
        return chance.choice(NASTY_TEXTS)
    if pick < 5:
        return chance.choice(NASTY_NUMBERS)
    if pick == 5:
        return chance.choice([None, True, False, [], {}, [[]], [{}], {"": ""}])
    if pick == 6:
        return {chance.choice(KNOWN_KEYS): nasty(chance) for _ in range(chance.randrange(4))}
    return [nasty(chance) for _ in range(chance.randrange(4))]


def holders(tree):
    """Every object and array of a tree."""
    found, waiting = [], [tree]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict | list):
            found.append(holder)
            waiting += holder.values() if isinstance(holder, dict) else holder
    return found


def spoil_tree(chance, tree):
    """A copy with one to four places changed; it may be a valid call still."""
    copy = json.loads(json.dumps(tree))
    for _ in range(chance.randint(1, 4)):
        _spoil_one(chance, chance.choice(holders(copy)))
    return copy


def _spoil_one(chance, holder):
    if isinstance(holder, list):
        if holder and chance.random() < 0.5:
            holder[chance.randrange(len(holder))] = nasty(chance)
        else:
            holder += [nasty(chance)] * chance.choice([1, 2, 50])
        return
    keys = list(holder)
    how = chance.randrange(4)
    if how == 0 or not keys:
        holder[chance.choice(KNOWN_KEYS)] = nasty(chance)
    elif how == 1:
        del holder[chance.choice(keys)]
    elif how == 2:
        key = chance.choice(keys)
        holder[chance.choice([key.swapcase(), key + "\x00", "", key * 50])] = holder.pop(key)
    else:
        holder[chance.choice(keys)] = nasty(chance)


def break_bytes(chance, body):
    """A body that is no JSON any more, or another."""
    body = bytearray(body)
    for _ in range(chance.choice([1, 1, 1, 3, 20])):
        at = chance.randrange(len(body) + 1)
        how = chance.randrange(5)
        if how == 0:
            body[at:at] = chance.randbytes(chance.randint(1, 8))
        elif how == 1:
            del body[at : at + chance.choice([1, 1, 5, 100])]
        elif how == 2:
            body[at : at + 1] = bytes([chance.randrange(256)])
        elif how == 3:
            body[at:at] = chance.choice([b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u00"])
        else:
            body[at:at] = body[at : at + chance.randint(1, 200)]
    return bytes(body)


def key_twice(chance, body):
    """The same body with the first key of one of its objects standing twice.

    The texts of valid calls hold no braces.
    """
    text = body.decode()
    at = chance.choice([match.end() for match in re.finditer(r'(?<![^:,\[]){(?=")', text)])
    key = text[at : text.index('":', at) + 2]
    return f"{text[:at]}{key}{json.dumps(nasty(chance))},{text[at:]}".encode()


def deep(chance, depth):
    """A value that is nested this deep, or not even closed."""
    opened, closed = chance.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
    return opened * depth + b"1" + closed * (depth if chance.random() < 0.7 else 0)
