# SPDX-License-Identifier: Apache-2.0
"""Lists of objects that are too large, from a server that pages as the real one does."""

import json

import pytest
from aiohttp import web

from gpupack_kubeclient import errors, listing
from gpupack_kubeclient.client import METADATA_LIST
from gpupack_kubeclient.resources import PODS

MIB = 1 << 20


def pod(name, filler=""):
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"filler": filler}}


class Paged:
    """Pods in pages; every object of a metadata list has no more than its metadata."""

    def __init__(self, pods):
        self.pods = pods
        self.limits = []

    async def answer(self, request):
        limit, start = int(request.query["limit"]), int(request.query.get("continue", 0))
        items, more = self.pods[start : start + limit], len(self.pods) > start + limit
        if request.headers["Accept"] == METADATA_LIST:
            items = [{"metadata": item["metadata"]} for item in items]
        else:
            self.limits.append(limit)
        meta = {"resourceVersion": "7", "continue": str(start + limit) if more else ""}
        # Written by hand: json.dumps would not write what is nested too deeply either.
        body = ",".join(item if isinstance(item, str) else json.dumps(item) for item in items)
        text = f'{{"metadata": {json.dumps(meta)}, "items": [{body}]}}'
        return web.Response(text=text, content_type="application/json")


@pytest.fixture
def listed(serve):
    async def read(paged):
        names, skipped = [], []
        async with serve(paged.answer) as api:
            async for page in listing.pages(api, PODS):
                names += [json.loads(bytes(raw))["metadata"]["name"] for raw in page.items]
                skipped += [metadata.name for metadata in page.skipped]
                assert page.version == "7"
        return names, skipped

    return read


async def test_a_page_that_is_too_large_is_read_in_smaller_ones(listed):
    paged = Paged([pod(f"p{number}", "<" * 4 * MIB) for number in range(6)])
    names, skipped = await listed(paged)
    assert (names, skipped) == ([f"p{number}" for number in range(6)], [])


async def test_an_object_beyond_the_limit_is_skipped_by_name_and_the_others_are_listed(listed):
    paged = Paged([pod("a"), pod("large", "x" * 17 * MIB), pod("z")])
    assert await listed(paged) == (["a", "z"], ["large"])


async def test_an_object_nested_too_deeply_is_skipped_by_name_and_the_others_are_listed(listed):
    class Deep(Paged):
        async def answer(self, request):
            answer = await super().answer(request)
            answer.text = answer.text.replace('"DEEP"', '{"a":' * 9000 + "1" + "}" * 9000)
            return answer

    paged = Deep([pod("a"), pod("deep", "DEEP"), pod("z")])
    assert await listed(paged) == (["a", "z"], ["deep"])


async def test_after_large_objects_pages_grow_again(listed):
    paged = Paged([pod("large", "x" * 17 * MIB), *(pod(f"p{number}") for number in range(600))])
    names, _ = await listed(paged)
    assert len(names) == 600
    assert paged.limits[-10:] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 500]


async def test_compression_is_not_requested(serve):
    async def answer(request):
        return web.json_response({"metadata": {"name": request.headers["Accept-Encoding"]}})

    async with serve(answer) as api:
        assert (await api.get(PODS, "a", namespace="n")).metadata.name == "identity"


async def test_one_object_that_is_too_large_is_a_kube_error(serve):
    async def answer(request):
        return web.json_response(pod("a", "x" * 17 * MIB))

    async with serve(answer) as api:
        with pytest.raises(errors.Oversized, match=r"larger than 16 MiB; GPUPACK_MAX_OBJECT_MIB"):
            await api.get(PODS, "a", namespace="n")
