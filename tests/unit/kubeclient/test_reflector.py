# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import time

import pytest
from aiohttp import web

from gpupack_kubeclient import objects
from gpupack_kubeclient import reflector as reflector_module
from gpupack_kubeclient.reflector import Reflector
from gpupack_kubeclient.resources import LEASES, PODS, Resource


class Names:
    """A store that holds the names of pods and wakes a waiter at each change."""

    def __init__(self):
        self.held = set()
        self.changed = asyncio.Condition()

    def replace(self, items):
        self.held = {item.metadata.name for item in items}

    def upsert(self, item):
        self.held.add(item.metadata.name)

    def remove(self, item):
        self.held.discard(item.metadata.name)


def pod(name, version):
    return {"metadata": {"name": name, "resourceVersion": version}}


def line(kind, item):
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class Script:
    """An API server that answers from prepared pages and notes what was asked."""

    def __init__(self, *, pages, watches):
        self.pages = pages
        self.watches = watches
        self.asked = []

    async def answer(self, request):
        self.asked.append(dict(request.query))
        if "watch" not in request.query:
            return web.json_response(self.pages.pop(0))
        if not self.watches:
            await asyncio.sleep(60)
        return web.Response(body=b"".join(self.watches.pop(0)))


async def run_until(reflector, condition):
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)
    task.cancel()


def page(items, *, version="1", more=""):
    return {"metadata": {"resourceVersion": version, "continue": more}, "items": items}


async def test_pages_are_joined_and_changes_applied(serve):
    script = Script(
        pages=[page([pod("a", "1")], more="next"), page([pod("b", "1")])],
        watches=[[line("ADDED", pod("c", "2")), line("DELETED", pod("a", "3"))]],
    )
    async with serve(script.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"b", "c"})
    assert script.asked[1]["continue"] == "next"


async def test_a_closed_watch_goes_on_from_the_last_version_seen(serve):
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    script = Script(pages=[page([])], watches=[[line("ADDED", pod("a", "5")), bookmark]])
    async with serve(script.answer) as api:
        await run_until(Reflector(api, PODS, Names()), lambda: len(script.asked) >= 3)
    assert script.asked[2]["resourceVersion"] == "9"


CUSTOM = Resource("/apis/gpupack.dev/v1beta1", "gpuquotas", objects.Object)


async def test_a_watch_of_custom_resources_that_ends_early_lists_again(serve, monkeypatch):
    """Their schema has changed, and objects seen until then may lack the new fields."""
    monkeypatch.setattr(reflector_module, "EARLY_RELIST_SECONDS", 0.3)
    pages = [page([]), page([pod("whole", "7")], version="7")]
    script = Script(pages=pages, watches=[[line("ADDED", pod("pruned", "7"))]])
    async with serve(script.answer) as api:
        store = Names()
        reflector = Reflector(api, CUSTOM, store)
        await run_until(reflector, lambda: store.held == {"whole"})


async def test_watches_that_all_end_at_once_do_not_make_for_a_list_each(serve):
    script = Script(pages=[page([])], watches=[[] for _ in range(4)])
    async with serve(script.answer) as api:
        await run_until(Reflector(api, CUSTOM, Names()), lambda: len(script.asked) >= 5)
    assert ["watch" in query for query in script.asked[:5]] == [False, True, True, True, True]


@pytest.mark.parametrize(("resource", "custom"), [(PODS, False), (LEASES, False), (CUSTOM, True)])
def test_kinds_of_crds_are_recognized_by_their_group(resource, custom):
    assert resource.custom is custom


async def test_an_expired_watch_lists_again_and_removes_deleted_objects(serve):
    gone = line("ERROR", {"code": 410, "reason": "Expired"})
    script = Script(pages=[page([pod("a", "1")]), page([pod("b", "8")])], watches=[[gone]])
    async with serve(script.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"b"})
    assert [("watch" in query) for query in script.asked[:3]] == [False, True, False]


async def test_an_invalid_event_causes_a_new_list(serve):
    script = Script(pages=[page([]), page([pod("b", "8")])], watches=[[b"{not json\n"]])
    async with serve(script.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"b"})


UNREADABLE = {"metadata": {"name": "a", "resourceVersion": "7"}, "status": {"phase": 3}}


async def test_an_object_that_cannot_be_read_stops_no_other(serve, caplog):
    events = [line("MODIFIED", UNREADABLE), line("ADDED", pod("b", "8"))]
    script = Script(pages=[page([pod("a", "1")])], watches=[events])
    async with serve(script.answer) as api:
        store = Names()
        reflector = Reflector(api, PODS, store)
        await run_until(reflector, lambda: len(script.asked) >= 3)
    assert store.held == {"a", "b"}
    assert (script.asked[2]["resourceVersion"], reflector.unreadable) == ("8", 1)
    assert "pods /a is skipped: cannot read a Pod" in caplog.text


async def test_a_list_leaves_out_what_cannot_be_read(serve):
    script = Script(pages=[page([UNREADABLE, pod("b", "1")])], watches=[])
    async with serve(script.answer) as api:
        store = Names()
        reflector = Reflector(api, PODS, store)
        await run_until(reflector, reflector.synced.is_set)
    assert (store.held, reflector.unreadable) == ({"b"}, 1)


async def test_an_unreadable_object_is_removed_when_it_is_deleted(serve):
    events = [line("DELETED", UNREADABLE)]
    script = Script(pages=[page([pod("a", "1")])], watches=[events])
    async with serve(script.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: len(script.asked) >= 3)
    assert store.held == set()


async def test_an_idle_watch_ends_when_a_new_list_is_requested(serve):
    script = Script(pages=[page([pod("a", "1")]), page([pod("b", "9")])], watches=[])
    async with serve(script.answer) as api:
        store = Names()
        reflector = Reflector(api, PODS, store)
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(30):
            while len(script.asked) < 2:
                await asyncio.sleep(0.01)
            asked_at = time.monotonic()
            reflector.relist()
            while reflector.listed_at < asked_at:
                await asyncio.sleep(0.01)
        task.cancel()
    assert store.held == {"b"}


async def test_a_list_that_was_under_way_does_not_count_as_a_new_one(serve):
    script = Script(pages=[page([]), page([pod("b", "9")])], watches=[])

    async def answer(request):
        if len(script.asked) == 0:
            reflector.relist()
        return await script.answer(request)

    async with serve(answer) as api:
        store = Names()
        reflector = Reflector(api, PODS, store)
        await run_until(reflector, lambda: store.held == {"b"})


LARGE = {
    "metadata": {"name": "large", "namespace": "team", "uid": "u-1", "resourceVersion": "7"},
    "spec": {"containers": [{"name": "c", "args": ["\\u003c" * (1 << 20)]}]},
}
TOO_LARGE = LARGE | {"spec": {"containers": [{"name": "c", "args": ["x" * (17 << 20)]}]}}


async def test_a_pod_of_a_megabyte_of_one_letter_is_read_like_any_other(serve):
    event = line("ADDED", LARGE).replace(b"\\\\u003c", b"\\u003c")
    assert len(event) > 6 << 20
    script = Script(pages=[page([])], watches=[[event, line("ADDED", pod("b", "8"))]])
    async with serve(script.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"large", "b"})


async def test_an_event_that_is_too_large_is_skipped_by_name_and_the_watch_goes_on(serve, caplog):
    events = [line("MODIFIED", TOO_LARGE)] * 3 + [line("ADDED", pod("b", "8"))]
    script = Script(pages=[page([pod("large", "1")])], watches=[events])
    async with serve(script.answer) as api:
        store = Names()
        reflector = Reflector(api, PODS, store)
        await run_until(reflector, lambda: store.held == {"large", "b"})
    assert reflector.unreadable == 3
    assert ["watch" in query for query in script.asked] == [False, True]
    assert caplog.text.count("pods team/large is skipped: it takes 17") == 1


async def test_a_too_large_object_is_removed_when_it_is_deleted(serve):
    script = Script(pages=[page([pod("large", "1")])], watches=[[line("DELETED", TOO_LARGE)]])
    async with serve(script.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: len(script.asked) >= 3)
    assert store.held == set()
    assert script.asked[2]["resourceVersion"] == "7"


NAMELESS = b'{"type":"MODIFIED","object":{"metadata":{"annotations":{"a":"' + b"x" * (17 << 20)


@pytest.fixture
def nameless():
    return Script(
        pages=[page([pod("a", "1")]), page([pod("b", "9")])],
        watches=[[NAMELESS + b'"}}}}\n'] * 4],
    )


async def test_an_invalid_object_without_a_name_causes_a_new_list(serve, nameless, monkeypatch):
    monkeypatch.setattr("gpupack_kubeclient.reflector.RELIST_SECONDS", 0.0)
    async with serve(nameless.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"b"})


async def test_an_invalid_object_without_a_name_does_not_cause_a_list_each_time(serve, nameless):
    async with serve(nameless.answer) as api:
        reflector = Reflector(api, PODS, Names())
        await run_until(reflector, lambda: reflector.unreadable == 4)
    assert ["watch" in query for query in nameless.asked] == [False, True]


async def test_an_object_that_is_nested_too_deeply_is_skipped_by_name(serve, caplog):
    deep = line("ADDED", LARGE | {"spec": {"deep": "DEEP"}})
    deep = deep.replace(b'"DEEP"', b'{"a":' * 9000 + b"1" + b"}" * 9000)
    script = Script(pages=[page([])], watches=[[deep, line("ADDED", pod("b", "8"))]])
    async with serve(script.answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"b"})
    assert "pods team/large is skipped" in caplog.text


async def silent(request):
    """Opens a watch and says nothing, not even an end."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.sleep(60)


async def test_a_watch_with_a_dead_connection_is_requested_again(serve, monkeypatch):
    monkeypatch.setattr("gpupack_kubeclient.client.WATCH_SILENCE_SECONDS", 0.2)
    script = Script(pages=[page([])], watches=[[line("ADDED", pod("b", "8"))]])

    async def answer(request):
        if len(script.asked) == 1:
            script.asked.append(dict(request.query))
            return await silent(request)
        return await script.answer(request)

    async with serve(answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"b"})


async def test_a_kind_of_which_nothing_is_said_is_fresh_as_long_as_watches_are_answered(serve):
    """The API server sends no bookmark before it has seen an event of the kind."""
    script = Script(pages=[page([])], watches=[[]] * 100)
    async with serve(script.answer) as api:
        reflector = Reflector(api, PODS, Names())
        fresh_at = set()
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(30):
            while len(script.asked) < 6:
                fresh_at.add(reflector.fresh_at)
                await asyncio.sleep(0.01)
        task.cancel()
    assert len(fresh_at) >= 5
    assert all(35 <= int(query["timeoutSeconds"]) <= 45 for query in script.asked[1:])


async def test_freshness_is_known_only_after_the_first_list(serve):
    script = Script(pages=[page([])], watches=[])
    async with serve(script.answer) as api:
        reflector = Reflector(api, PODS, Names())
        assert reflector.age_seconds() == float("inf")
        await run_until(reflector, reflector.synced.is_set)
    assert reflector.age_seconds() < 30


async def test_a_page_that_times_out_is_requested_with_a_smaller_limit(serve, monkeypatch):
    monkeypatch.setattr("gpupack_kubeclient.client.LIST_SECONDS", 1.0)
    script = Script(pages=[page([pod("a", "1")])], watches=[])
    limits = []

    async def answer(request):
        if "watch" not in request.query:
            limits.append(int(request.query["limit"]))
            if limits[-1] > 200:
                await asyncio.sleep(60)
        return await script.answer(request)

    async with serve(answer) as api:
        store = Names()
        await run_until(Reflector(api, PODS, store), lambda: store.held == {"a"})
    assert limits == [500, 250, 125]


class Choosy(Names):
    """Fails at one pod."""

    def upsert(self, item):
        if item.metadata.name == "bad":
            raise RecursionError("too deep")
        super().upsert(item)

    def replace(self, items):
        super().replace([])
        for item in items:
            self.upsert(item)


async def test_an_object_at_which_the_store_fails_is_passed_over_by_name(serve, caplog):
    events = [line("ADDED", pod("bad", "7")), line("ADDED", pod("b", "8"))]
    script = Script(pages=[page([pod("a", "1")])], watches=[events])
    async with serve(script.answer) as api:
        store = Choosy()
        reflector = Reflector(api, PODS, store)
        await run_until(reflector, lambda: store.held == {"a", "b"})
    assert reflector.unreadable == 1
    assert "pods /bad is skipped: processing it failed: RecursionError" in caplog.text


async def test_a_list_leaves_out_the_object_at_which_the_store_fails(serve, caplog):
    listed = [pod("a", "1"), pod("bad", "2"), pod("b", "3")]
    script = Script(pages=[page(listed)], watches=[])
    async with serve(script.answer) as api:
        store = Choosy()
        reflector = Reflector(api, PODS, store)
        await run_until(reflector, lambda: store.held == {"a", "b"} and reflector.synced.is_set())
    assert "pods /bad is skipped" in caplog.text
