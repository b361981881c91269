# SPDX-License-Identifier: Apache-2.0
import asyncio
import gzip
import json
import zlib

import pytest
from extender_builders import gpu_node, node, pod, whole

from gpupack_apiserver.errors import CallInvalid, PermissionLost
from gpupack_apiserver.events import stream
from gpupack_apiserver.events.feed import MAX_TICKS
from gpupack_apiserver.events.frames import NO_TICK, PIECE_ITEMS, Frame, Frames, Scope, deflated
from gpupack_apiserver.events.limits import MAX_PER_USER, StreamLimits
from gpupack_apiserver.events.stream import Events, Gzip
from gpupack_apiserver.events.visibility import Visibility
from gpupack_httpserver.access import Caller
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_kubeclient.errors import KubeError

ALL = Scope(cluster=True, all_namespaces=True)
TENANT = Scope(cluster=True, namespaces=frozenset({"team"}))


@pytest.fixture
def frames(feed, model, history):
    return Frames(feed, model, history)


def text(frame):
    return b"".join(frame.text(number) for number in range(len(frame))).decode()


def parsed(received):
    """Return the data of events by event name."""
    blocks = [block.split("\n") for block in received.strip().split("\n\n") if block != ":"]
    return {
        name.removeprefix("event: "): json.loads(data.removeprefix("data: "))
        for name, data in blocks
    }


def names(jobs):
    return [each["name"] for each in jobs]


def test_repeated_changes_in_a_tick_are_sent_once(feed, frames, job):
    seen = feed.join()
    for phase in ("Pending", "Admitted", "Running"):
        job("one", phase=phase)
    feed.tick()
    received = parsed(text(frames.frame_for(ALL, seen)))
    assert [(each["name"], each["phase"]) for each in received["jobs"]["changed"]] == [
        ("one", "Running")
    ]
    assert "nodes" not in received
    assert len(frames.frame_for(ALL, feed.number)) == 0


def test_a_tick_without_changes_is_not_counted(feed):
    seen = feed.join()
    feed.tick()
    assert feed.number == seen


def test_changes_without_listeners_are_in_the_complete_state(feed, frames, job):
    job("one", phase="Pending")
    feed.join()
    assert names(parsed(text(frames.frame_for(ALL, NO_TICK)))["jobs"]["changed"]) == ["one"]
    feed.leave()
    job("two", phase="Pending")
    feed.join()
    assert names(parsed(text(frames.frame_for(ALL, NO_TICK)))["jobs"]["changed"]) == ["one", "two"]


def test_pieces_of_nodes_are_shared_by_all_listeners(feed, frames, job, model):
    job("one")
    seen = feed.join()
    for since in (NO_TICK, seen):
        one, other = (frames.frame_for(scope, since) for scope in (ALL, TENANT))
        assert one is not other
        assert all(one.text(number) is other.text(number) for number in range(len(one) - 1))
        model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
        job("one", phase="Running")
        feed.tick()
    assert len(frames.frame_for(ALL, seen)) == 3


def test_a_node_is_sent_when_its_held_gpus_change(feed, frames, model):
    seen = feed.join()
    model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    feed.tick()
    received = parsed(text(frames.frame_for(TENANT, seen)))
    assert [
        (each["node_name"], each["available_gpus"]) for each in received["nodes"]["changed"]
    ] == [("a", 3)]
    assert received["cluster"]["utilization"]["gpu_utilization"] == 12.5
    assert received["cluster"]["available_gpus"] == 7


def test_removed_objects_are_sent_by_name(feed, frames, model, job):
    job("one")
    seen = feed.join()
    model.ledger.gpus.remove(gpu_node("a"))
    model.jobs.remove(model.jobs.by_key["team", "one"])
    feed.tick()
    received = parsed(text(frames.frame_for(ALL, seen)))
    assert received["nodes"] == {"changed": [], "removed": ["a"]}
    assert received["jobs"] == {"changed": [], "removed": [{"namespace": "team", "name": "one"}]}


def test_a_listener_gets_jobs_of_visible_namespaces(feed, frames, model, job):
    job("old", namespace="others")
    seen = feed.join()
    job("mine")
    job("secret", namespace="others")
    model.jobs.remove(model.jobs.by_key["others", "old"])
    feed.tick()
    for frame in (frames.frame_for(TENANT, seen), frames.frame_for(TENANT, NO_TICK)):
        assert names(parsed(text(frame))["jobs"]["changed"]) == ["mine"]
        assert "secret" not in text(frame)
        assert "old" not in text(frame)


def test_a_listener_that_may_not_see_the_cluster_gets_only_jobs(feed, frames, job):
    feed.join()
    job("mine")
    received = parsed(text(frames.frame_for(Scope(cluster=False, all_namespaces=True), NO_TICK)))
    assert received.keys() == {"jobs"}


def test_a_listener_may_start_with_the_complete_state(feed, frames, job):
    for number in range(3):
        job(f"job-{number}")
    feed.join()
    received = parsed(text(frames.frame_for(ALL, NO_TICK)))
    assert [each["node_name"] for each in received["nodes"]["changed"]] == ["a", "b"]
    assert len(received["jobs"]["changed"]) == 3
    assert received["cluster"]["total_gpus"] == 8


def test_all_jobs_of_a_newly_visible_namespace_are_sent(feed, frames, job):
    job("before", namespace="new")
    seen = feed.join()
    job("now", namespace="new")
    feed.tick()
    scope = Scope(cluster=False, namespaces=frozenset({"new"}))
    received = parsed(text(frames.frame_for(scope, seen, added=frozenset({"new"}))))
    assert names(received["jobs"]["changed"]) == ["before", "now"]


def test_listeners_with_the_same_permissions_get_the_same_bytes(feed, frames, job):
    seen = feed.join()
    job("one")
    feed.tick()
    frame = frames.frame_for(ALL, seen)
    assert frames.frame_for(ALL, seen) is frame
    assert frame.text(0) is frame.text(0)
    assert frame.deflated(0) is frame.deflated(0)


def test_an_old_frame_is_written_again_for_a_slow_reader(feed, frames, job):
    seen = feed.join()
    job("one")
    feed.tick()
    frame = frames.frame_for(ALL, seen)
    before = frame.text(0)
    job("two")
    feed.tick()
    frames.frame_for(ALL, seen)
    assert frame.text(0) == before
    assert frame.text(0) is not frame.text(0)


def test_a_slow_reader_gets_only_the_present_state(feed, frames, job):
    seen = feed.join()
    for number in range(MAX_TICKS):
        job("one", message=str(number))
        feed.tick()
    (only,) = parsed(text(frames.frame_for(ALL, seen)))["jobs"]["changed"]
    assert only["message"] == str(MAX_TICKS - 1)
    job("one", message="later")
    feed.tick()
    assert frames.frame_for(ALL, seen) is None


def test_a_list_with_the_same_versions_is_no_change(feed, model, job):
    job("one")
    seen = feed.join()
    model.jobs.replace([*model.jobs.by_key.values()])
    feed.tick()
    assert feed.number == seen
    model.jobs.replace([])
    feed.tick()
    assert feed.changes_since(seen).jobs == {("team", "one")}


def test_many_objects_are_one_event_in_pieces(feed, frames, job):
    for number in range(2 * PIECE_ITEMS + 1):
        job(f"job-{number:03}")
    feed.join()
    frame = frames.frame_for(Scope(cluster=False, all_namespaces=True), NO_TICK)
    assert len(frame) == 3
    assert len(parsed(text(frame))["jobs"]["changed"]) == 2 * PIECE_ITEMS + 1


def test_compressed_pieces_of_any_frames_make_one_gzip_stream(feed, frames, job):
    for number in range(2 * PIECE_ITEMS):
        job(f"job-{number:03}")
    seen = feed.join()
    job("later")
    feed.tick()
    shown = [frames.frame_for(ALL, NO_TICK), frames.frame_for(ALL, seen), Frame([])]
    encode, sent = Gzip(), b""
    for frame in shown:
        sent += b"".join(encode.piece((frame, number)) for number in range(len(frame)))
    sent += encode.piece(b":\n\n") + encode.end()
    assert gzip.decompress(sent).decode() == "".join(map(text, shown)) + ":\n\n"
    assert len(sent) < len("".join(map(text, shown))) / 3


def test_each_piece_of_a_gzip_stream_can_be_decompressed_at_once(feed, frames, job):
    encode, reader = Gzip(), zlib.decompressobj(31)
    assert reader.decompress(encode.piece(b"data: 1\n\n")) == b"data: 1\n\n"
    assert reader.decompress(deflated(b"data: 2\n\n")) == b"data: 2\n\n"


def test_no_changes_are_kept_without_listeners(feed, job):
    job("one")
    seen = feed.join()
    feed.leave()
    job("two")
    feed.join()
    assert feed.changes_since(seen).jobs == frozenset()


def test_streams_of_a_user_are_limited_and_a_lost_slot_is_released():
    limits = StreamLimits()
    places = [limits.take(user="u", address="p") for _ in range(MAX_PER_USER)]
    with pytest.raises(Denied, match="user u has 4 streams"):
        limits.take(user="u", address="p")
    places.pop().release()
    places.append(limits.take(user="u", address="p"))
    del places
    assert len(limits) == 0


def test_streams_of_an_address_and_of_the_server_are_limited():
    limits, places = StreamLimits(), []
    with pytest.raises(Denied, match="address p has 16 streams"):
        places.extend(limits.take(user=str(number), address="p") for number in range(17))
    places = []
    with pytest.raises(Denied, match="this server has 64 streams"):
        places.extend(limits.take(user=str(number), address=str(number)) for number in range(65))


@pytest.fixture
async def seen(server, rights):
    """Return a function that checks a user's visibility of the namespaces with jobs."""

    async def begin(name="tenant", *, asked="", there=("team", "others")):
        made = Visibility(rights, Caller(f"Bearer {name}-token", "p"), User(name), namespace=asked)
        await made.check_all(there)
        return made

    return begin


async def test_a_listener_sees_the_namespaces_that_it_may_list(seen):
    assert (await seen()).scope == TENANT
    assert (await seen("admin")).scope == ALL
    assert (await seen("other")).scope == Scope(cluster=True)


async def test_a_listener_of_one_namespace_gets_only_its_jobs(seen):
    made = await seen("admin", asked="others")
    assert made.scope.namespaces == {"others"}
    with pytest.raises(Denied, match="tenant may not list"):
        await seen(asked="others")


async def test_a_new_namespace_is_checked_once(seen, server):
    made, before = await seen(), server.reviews
    server.rights.add(("tenant", "gpujobs", "new"))
    assert await made.check_new(["team", "new", "foreign"]) == {"new"}
    assert made.scope.namespaces == {"team", "new"}
    assert await made.check_new(["new", "foreign"]) == frozenset()
    assert server.reviews == before + 2


async def test_with_too_many_namespaces_one_has_to_be_named(seen):
    with pytest.raises(CallInvalid, match="name one"):
        await seen(there=[f"team-{number}" for number in range(257)])


async def test_a_stream_ends_with_too_many_new_namespaces(seen):
    made = await seen(there=[f"team-{number}" for number in range(256)])
    with pytest.raises(CallInvalid, match="name one; there are 257"):
        await made.check_new(["team-256"])


@pytest.mark.parametrize("kind", ["gpujobs", "gpunodes/summary"])
async def test_a_removed_permission_is_noticed(seen, server, kind, forget_rights):
    made = await seen()
    await made.recheck()
    server.rights -= {("tenant", kind, ""), ("tenant", kind, "team")}
    forget_rights()
    with pytest.raises(PermissionLost, match="was removed"):
        await made.recheck()


async def test_a_partly_failed_check_forgets_no_namespace(seen, server, rights, monkeypatch):
    server.rights.add(("tenant", "gpujobs", "second"))
    made = await seen(there=("second", "team"))
    list_ = rights.may_list

    async def answers_of_one(user, kind, namespace):
        if namespace == "team":
            raise KubeError("no answer")
        return await list_(user, kind, namespace)

    monkeypatch.setattr(rights, "may_list", answers_of_one)
    with pytest.raises(KubeError):
        await made.recheck()
    await made.check_new(("others",))
    assert made.scope.namespaces == {"second", "team"}


async def test_an_expired_token_is_noticed(seen, server, forget_rights):
    made = await seen()
    del server.users["tenant-token"]
    forget_rights()
    with pytest.raises(Denied, match="the token is not valid"):
        await made.recheck()


@pytest.fixture
def heard(feed, frames, model, seen):
    """Return all that a listener gets until the stream ends by itself."""

    async def listen(*, during=lambda: None, seconds=0, full=False, name="tenant"):
        events = Events(feed, frames, await seen(name), model.missing, full=full, seconds=seconds)
        received = []

        async def take():
            received.extend(
                [
                    what if isinstance(what, bytes) else what[0].text(what[1])
                    async for what in events.pieces()
                ]
            )

        task = asyncio.create_task(take())
        while not (received or feed.listeners or task.done()):
            await asyncio.sleep(0)
        during()
        async with asyncio.timeout(30):
            await task
        assert feed.listeners == 0
        return b"".join(received).decode()

    return listen


async def test_a_listener_gets_changes_from_its_start(heard, feed, job):
    job("before")

    def change():
        job("one")
        feed.tick()
        asyncio.get_running_loop().call_later(0.1, feed.end, "the server stops")

    received = parsed(await heard(during=change))
    assert names(received["jobs"]["changed"]) == ["one"]
    assert received["bye"] == {"reason": "Stopping", "message": "the server stops"}


async def test_a_stream_ends_after_the_requested_time(heard, job):
    job("before")
    received = parsed(await heard(seconds=0.1, full=True))
    assert names(received["jobs"]["changed"]) == ["before"]
    assert received["bye"]["reason"] == "Over"


async def test_a_stream_ends_when_watches_are_stale(heard, feed, watched):
    def silence():
        watched.age = 100.0
        feed._wake()

    assert parsed(await heard(during=silence))["bye"]["reason"] == "Stale"


@pytest.mark.parametrize(
    ("lose", "reason"),
    [
        (lambda server: server.users.pop("tenant-token"), "TokenExpired"),
        (lambda server: server.rights.discard(("tenant", "gpujobs", "team")), "RightsTaken"),
    ],
)
async def test_a_stream_ends_with_its_permission(
    heard, server, monkeypatch, forget_rights, lose, reason
):
    monkeypatch.setattr(stream, "RECHECK_SECONDS", 0.1)

    def take_away():
        lose(server)
        forget_rights()

    assert parsed(await heard(during=take_away))["bye"]["reason"] == reason


async def test_an_idle_stream_sends_keepalive_comments(heard, monkeypatch):
    monkeypatch.setattr(stream, "KEEPALIVE_SECONDS", 0.05)
    assert (await heard(seconds=0.3)).count(":\n\n") > 2


async def test_the_call_answers_server_sent_events(call, job):
    job("mine")
    job("secret", namespace="others")
    found = await call("events", user="tenant", full=True, seconds=1)
    assert found.type.startswith("text/event-stream")
    received = parsed(found.text)
    assert names(received["jobs"]["changed"]) == ["mine"]
    assert received["nodes"]["changed"]
    assert received["bye"]["reason"] == "Over"
    assert "secret" not in found.text


async def test_the_events_call_is_refused_like_other_calls(call, job):
    job("secret", namespace="others")
    assert (await call("events", user="")).status == 401
    refused = await call("events", user="tenant", namespace="others")
    assert (refused.status, refused.type) == (403, "application/problem+json")


async def test_a_new_node_is_sent(feed, frames, model):
    seen = feed.join()
    model.ledger.nodes.upsert(node("c"))
    model.ledger.gpus.upsert(gpu_node("c"))
    feed.tick()
    received = parsed(text(frames.frame_for(ALL, seen)))
    assert [each["node_name"] for each in received["nodes"]["changed"]] == ["c"]
