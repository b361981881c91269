# SPDX-License-Identifier: Apache-2.0
"""The calls of a run: number and seed decide every byte.

Pods, jobs and UIDs do not exist: a valid call may reserve GPUs for seconds, and binds nothing. A
call names its expected answer where that is certain.
"""

import dataclasses
import json
import random
import uuid

import mutations

FILTER, PRIORITIZE, BIND = "/scheduler/filter", "/scheduler/prioritize", "/scheduler/bind"
PLAN = "/v1beta1/namespaces/fuzz-none/plan"
VERBS, PLANS = "verbs", "plans"
MALFORMED = "4xx"
ANY = "any but 5xx"
RAW = "any but 5xx, or none"


@dataclasses.dataclass(frozen=True)
class Call:
    """Bytes to send to one of the two servers, and what may come back."""

    number: int
    kind: str
    server: str
    sent: bytes
    expected: str


@dataclasses.dataclass(frozen=True)
class World:
    """What valid calls are made of."""

    nodes: list[str]
    tokens: list[str]
    """The first one is the operator's; the others are real ones for something else."""


def call(seed, number, world):
    """The call of this number."""
    chance = random.Random(f"{seed}/{number}")
    weights = [weight for weight, _ in KINDS.values()]
    kind = chance.choices(list(KINDS), weights)[0]
    server, sent, expected = KINDS[kind][1](chance, world)
    return Call(number, kind, server, sent, expected)


def _valid(chance, world):
    path = chance.choice([FILTER, FILTER, PRIORITIZE, BIND, PLAN, PLAN])
    if path == BIND:
        return path, _bind(chance, world)
    if path == PLAN:
        return path, _plan(chance)
    return path, _filter(chance, world)


def _pod(chance, name):
    limits = chance.choice(
        [
            {"gpupack.dev/gpu": str(chance.randint(1, 9))},
            {
                "gpupack.dev/gpu-share": "1",
                "gpupack.dev/gpu-percent": str(chance.randint(1, 99)),
                "gpupack.dev/gpu-memory": f"{chance.randint(1, 90)}Gi",
            },
            {"nvidia.com/gpu": "1"},
        ]
    )
    limits |= {"cpu": "1", "memory": "1Gi"}
    labels = {"app": name}
    if chance.random() < 0.3:
        labels |= {
            "gpupack.dev/job": "fuzz",
            "gpupack.dev/job-uid": _uid(chance),
            "gpupack.dev/attempt": "1",
            "gpupack.dev/index": "0",
        }
    term = {
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
    }
    selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {
        "schedulerName": "gpupack",
        "containers": [
            {"name": "c", "resources": {"limits": limits | {"cpu": "1", "memory": "1Gi"}}}
        ],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    }
    if chance.random() < 0.3:
        spec["affinity"] = {"nodeAffinity": selector}
    metadata = {"name": name, "namespace": "fuzz-none", "uid": _uid(chance), "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _filter(chance, world):
    names = [f"fuzz-node-{number}" for number in range(chance.choice([0, 1, 10, 10, 500]))]
    return {
        "Pod": _pod(chance, f"fuzz-{chance.randrange(1 << 30)}"),
        "Nodes": None,
        "NodeNames": world.nodes * chance.randrange(2) + names,
    }


def _bind(chance, world):
    return {
        "PodName": f"fuzz-{chance.randrange(1 << 30)}",
        "PodNamespace": "fuzz-none",
        "PodUID": _uid(chance),
        "Node": chance.choice([*world.nodes, "fuzz-node"]),
    }


def _plan(chance):
    ask = chance.choice(
        [{"gpus": chance.randint(1, 8)}, {"share": {"percent": 5, "memory": "1Gi"}}]
    )
    name = f"fuzz-{chance.randrange(1 << 30)}"
    return {
        "namespace": "fuzz-none",
        "name": name,
        "uid": _uid(chance),
        "attempt": 1,
        "spec": {"workers": chance.randint(1, 4), **ask},
        "podSpec": _pod(chance, name)["spec"],
    }


def _uid(chance):
    return str(uuid.UUID(int=chance.getrandbits(128)))


def _written(tree):
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def _http(chance, world, path, body, *, method="POST", headers=()):
    """A whole request; the token is the right one three times of four."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: x"]
    names = {name.lower() for name, _ in headers}
    if b"content-type" not in names:
        lines.append(b"Content-Type: application/json")
    if path == PLAN and b"authorization" not in names:
        right = chance.random() < 0.75
        token = world.tokens[0] if right else chance.choice(_wrong_tokens(chance, world))
        lines.append(b"Authorization: " + token.encode())
    lines += [name + b": " + value for name, value in headers]
    if chance.random() < 0.2 and body:
        return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", _chunked(chance, body)])
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


def _wrong_tokens(chance, world):
    return [
        *world.tokens[1:],
        "",
        "Bearer",
        "Bearer ",
        "Basic dTpw",
        "Bearer x",
        "Bearer a.b.c",
        "Bearer " + "x" * 20_000,
        "Bearer ü",
        world.tokens[0] + "x",
        world.tokens[0][:-9],
        "bearer  " + world.tokens[0][7:],
    ]


def _chunked(chance, body):
    parts, at = [], 0
    while at < len(body):
        size = chance.choice([1, 7, 1000, 60_000, len(body)])
        part = body[at : at + max(size, len(body) // 200)]
        parts.append(b"%x\r\n%s\r\n" % (len(part), part))
        at += len(part)
    return b"".join([*parts, b"0\r\n\r\n"])


def _server(path):
    return PLANS if path == PLAN else VERBS


def valid(chance, world):
    path, tree = _valid(chance, world)
    return _server(path), _http(chance, world, path, _written(tree)), ANY


def spoiled_tree(chance, world):
    path, tree = _valid(chance, world)
    spoiled = mutations.spoil_tree(chance, tree)
    return _server(path), _http(chance, world, path, _written(spoiled)), ANY


def broken_bytes(chance, world):
    path, tree = _valid(chance, world)
    body = mutations.break_bytes(chance, _written(tree))
    return _server(path), _http(chance, world, path, body), ANY


def truncated(chance, world):
    path, tree = _valid(chance, world)
    body = _written(tree)
    return _server(path), _http(chance, world, path, body[: chance.randrange(len(body))]), MALFORMED


def key_twice(chance, world):
    path, tree = _valid(chance, world)
    body = mutations.key_twice(chance, _written(tree))
    return _server(path), _http(chance, world, path, body), MALFORMED


def nested(chance, world):
    path, tree = _valid(chance, world)
    key = json.dumps(chance.choice(list(tree))).encode()
    depth = chance.choice([2_000, 50_000, 400_000])
    value = mutations.deep(chance, depth)
    body = _written(tree).replace(key + b":", key + b":" + value + b',"x":', 1)
    return _server(path), _http(chance, world, path, body), MALFORMED if depth > 2_000 else ANY


def other_coding(chance, world):
    path, tree = _valid(chance, world)
    coding = chance.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7"])
    body = json.dumps(tree, ensure_ascii=False).encode(coding)
    if coding == "utf-7":
        body = body.replace(b"f", b"\xff\xfe", 1)
    return _server(path), _http(chance, world, path, body), MALFORMED


def large(chance, world):
    path = chance.choice([FILTER, PRIORITIZE, BIND, PLAN])
    size = chance.choice([1 << 20, 3 << 20, 8 << 20, 10 << 20])
    unit = chance.choice([b" ", b"[],", b'{"a":1},', b'"a",', b'"x":1,', b"1,", b"\xff", b'"'])
    filling = (unit * (size // len(unit)))[:-1]
    body = chance.choice([filling, b"[" + filling + b"]", b'{"x":[' + filling + b"]}"])
    return _server(path), _http(chance, world, path, body), MALFORMED


def large_and_valid(chance, world):
    names = [
        f"fuzz-{'n' * 200}-{number}" for number in range(chance.choice([5000, 20_000, 20_001]))
    ]
    tree = _filter(chance, world) | {"NodeNames": names}
    path = chance.choice([FILTER, PRIORITIZE])
    return VERBS, _http(chance, world, path, _written(tree)), ANY


def wrong_request(chance, world):
    """Another method, path, media type, coding or length."""
    path, tree = _valid(chance, world)
    body = _written(tree)
    how = chance.randrange(6)
    if how == 0:
        method = chance.choice(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
        return _server(path), _http(chance, world, path, body, method=method), MALFORMED
    if how == 1:
        paths = [
            "/",
            "*",
            path + "/",
            path.upper(),
            "//" + path,
            path + "%00",
            "/scheduler/preempt",
        ]
        return _server(path), _http(chance, world, chance.choice(paths), body), MALFORMED
    if how == 2:
        kind = chance.choice(
            [b"text/plain", b"", b"application/xml", b"\xff", b"multipart/form-data"]
        )
        headers = [(b"Content-Type", kind)]
        return _server(path), _http(chance, world, path, body, headers=headers), MALFORMED
    if how == 3:
        headers = [(b"Content-Encoding", chance.choice([b"gzip", b"br", b"identity, gzip"]))]
        return _server(path), _http(chance, world, path, body, headers=headers), MALFORMED
    if how == 4:
        headers = [(b"X-%d" % n, b"x" * chance.choice([1, 2000])) for n in range(120)]
        return _server(path), _http(chance, world, path, body, headers=headers), MALFORMED
    headers = [(chance.choice([b"Content-Length", b"Transfer-Encoding"]), b"nonsense")]
    return _server(path), _http(chance, world, path, body, headers=headers), MALFORMED


def raw(chance, world):
    """What is no request, or one and something else."""
    path, tree = _valid(chance, world)
    whole = _http(chance, world, path, _written(tree))
    how = chance.randrange(4)
    if how == 0:
        return _server(path), chance.randbytes(chance.choice([1, 50, 5000])), RAW
    if how == 1:
        return _server(path), whole + chance.randbytes(chance.choice([1, 50, 5000])), RAW
    if how == 2:
        return _server(path), whole * chance.randint(2, 20), RAW
    return _server(path), mutations.break_bytes(chance, whole), RAW


def other_endpoint(chance, world):
    """Everything else on the port of the plans, called in any way."""
    path = chance.choice(["/healthz", "/snapshot", "/metrics", "/metrics?x=" + "y" * 3000])
    method = chance.choice(["GET", "HEAD", "POST"])
    token = chance.choice(_wrong_tokens(chance, world))
    headers = [(b"Authorization", token.encode())]
    body = chance.randbytes(chance.choice([0, 0, 10]))
    return PLANS, _http(chance, world, path, body, method=method, headers=headers), RAW


KINDS = {
    "valid": (10, valid),
    "spoiled tree": (40, spoiled_tree),
    "broken bytes": (20, broken_bytes),
    "truncated": (6, truncated),
    "key twice": (8, key_twice),
    "nested": (2, nested),
    "other coding": (3, other_coding),
    "large": (1, large),
    "large and valid": (1, large_and_valid),
    "wrong request": (8, wrong_request),
    "raw": (6, raw),
    "other endpoint": (4, other_endpoint),
}
"""How often, and how each kind of call is made."""
