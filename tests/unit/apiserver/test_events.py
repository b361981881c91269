# SPDX-License-Identifier: Apache-2.0
import asyncio
import gzip
import json
import zlib

import pytest
from extender_builders import gpu_node, node, pod, whole

from gpupack_apiserver.errors import CallWrong, RightLost
from gpupack_apiserver.events import stream
from gpupack_apiserver.events.feed import KEPT_TICKS
from gpupack_apiserver.events.frames import NEVER, PIECE_ITEMS, Frame, Frames, Scope, deflated
from gpupack_apiserver.events.limits import MAX_OF_USER, StreamLimits
from gpupack_apiserver.events.stream import Events, Gzip
from gpupack_apiserver.events.visibility import Visibility
from gpupack_httpserver.access import Caller
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_kubeclient.errors import KubeError

ALL = Scope(cluster=True, everywhere=True)
TENANT = Scope(cluster=True, namespaces=frozenset({"team"}))


@pytest.fixture
def frames(feed, model, history):
    return Frames(feed, model, history)


def text(frame):
    return b"".join(frame.text(number) for number in range(len(frame))).decode()


def parsed(told):
    """By name of the event, what its data say."""
    blocks = [block.split("\n") for block in told.strip().split("\n\n") if block != ":"]
    return {
        name.removeprefix("event: "): json.loads(data.removeprefix("data: "))
        for name, data in blocks
    }


def names(jobs):
    return [each["name"] for each in jobs]


def test_what_changed_is_told_once_however_often_it_did(feed, frames, job):
    seen = feed.join()
    for phase in ("Pending", "Admitted", "Running"):
        job("one", phase=phase)
    feed.tick()
    told = parsed(text(frames.of(ALL, seen)))
    assert [(each["name"], each["phase"]) for each in told["jobs"]["changed"]] == [
        ("one", "Running")
    ]
    assert "nodes" not in told
    assert len(frames.of(ALL, feed.number)) == 0


def test_a_tick_without_changes_is_none(feed):
    seen = feed.join()
    feed.tick()
    assert feed.number == seen


def test_what_changed_while_nobody_listened_is_in_all_there_is(feed, frames, job):
    job("one", phase="Pending")
    feed.join()
    assert names(parsed(text(frames.of(ALL, NEVER)))["jobs"]["changed"]) == ["one"]
    feed.leave()
    job("two", phase="Pending")
    feed.join()
    assert names(parsed(text(frames.of(ALL, NEVER)))["jobs"]["changed"]) == ["one", "two"]


def test_nodes_are_written_once_for_all_whatever_jobs_they_may_see(feed, frames, job, model):
    job("one")
    seen = feed.join()
    for since in (NEVER, seen):
        one, other = (frames.of(scope, since) for scope in (ALL, TENANT))
        assert one is not other
        assert all(one.text(number) is other.text(number) for number in range(len(one) - 1))
        model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
        job("one", phase="Running")
        feed.tick()
    assert len(frames.of(ALL, seen)) == 3


def test_nodes_are_told_when_what_is_held_of_them_changes(feed, frames, model):
    seen = feed.join()
    model.ledger.pods.upsert(pod("p", on="a", devices=whole("a", 0)))
    feed.tick()
    told = parsed(text(frames.of(TENANT, seen)))
    assert [(each["node_name"], each["available_gpus"]) for each in told["nodes"]["changed"]] == [
        ("a", 3)
    ]
    assert told["cluster"]["utilization"]["gpu_utilization"] == 12.5
    assert told["cluster"]["available_gpus"] == 7


def test_what_is_gone_is_told_by_name(feed, frames, model, job):
    job("one")
    seen = feed.join()
    model.ledger.gpus.remove(gpu_node("a"))
    model.jobs.remove(model.jobs.by_key["team", "one"])
    feed.tick()
    told = parsed(text(frames.of(ALL, seen)))
    assert told["nodes"] == {"changed": [], "removed": ["a"]}
    assert told["jobs"] == {"changed": [], "removed": [{"namespace": "team", "name": "one"}]}


def test_jobs_are_told_of_namespaces_that_the_listener_may_see(feed, frames, model, job):
    job("old", namespace="others")
    seen = feed.join()
    job("mine")
    job("secret", namespace="others")
    model.jobs.remove(model.jobs.by_key["others", "old"])
    feed.tick()
    for frame in (frames.of(TENANT, seen), frames.of(TENANT, NEVER)):
        assert names(parsed(text(frame))["jobs"]["changed"]) == ["mine"]
        assert "secret" not in text(frame)
        assert "old" not in text(frame)


def test_who_may_not_see_the_cluster_is_told_of_jobs_alone(feed, frames, job):
    feed.join()
    job("mine")
    told = parsed(text(frames.of(Scope(cluster=False, everywhere=True), NEVER)))
    assert told.keys() == {"jobs"}


def test_a_listener_may_begin_with_all_there_is(feed, frames, job):
    for number in range(3):
        job(f"job-{number}")
    feed.join()
    told = parsed(text(frames.of(ALL, NEVER)))
    assert [each["node_name"] for each in told["nodes"]["changed"]] == ["a", "b"]
    assert len(told["jobs"]["changed"]) == 3
    assert told["cluster"]["total_gpus"] == 8


def test_a_namespace_that_may_be_seen_now_is_told_whole(feed, frames, job):
    job("before", namespace="new")
    seen = feed.join()
    job("now", namespace="new")
    feed.tick()
    scope = Scope(cluster=False, namespaces=frozenset({"new"}))
    told = parsed(text(frames.of(scope, seen, added=frozenset({"new"}))))
    assert names(told["jobs"]["changed"]) == ["before", "now"]


def test_those_who_may_see_the_same_are_sent_the_same_bytes(feed, frames, job):
    seen = feed.join()
    job("one")
    feed.tick()
    frame = frames.of(ALL, seen)
    assert frames.of(ALL, seen) is frame
    assert frame.text(0) is frame.text(0)
    assert frame.deflated(0) is frame.deflated(0)


def test_a_frame_that_is_not_the_last_is_written_anew_for_whoever_reads_slowly(feed, frames, job):
    seen = feed.join()
    job("one")
    feed.tick()
    frame = frames.of(ALL, seen)
    before = frame.text(0)
    job("two")
    feed.tick()
    frames.of(ALL, seen)
    assert frame.text(0) == before
    assert frame.text(0) is not frame.text(0)


def test_who_reads_slowly_is_told_the_state_of_then_and_no_more(feed, frames, job):
    seen = feed.join()
    for number in range(KEPT_TICKS):
        job("one", message=str(number))
        feed.tick()
    (only,) = parsed(text(frames.of(ALL, seen)))["jobs"]["changed"]
    assert only["message"] == str(KEPT_TICKS - 1)
    job("one", message="later")
    feed.tick()
    assert frames.of(ALL, seen) is None


def test_a_list_that_shows_the_same_versions_is_no_news(feed, model, job):
    job("one")
    seen = feed.join()
    model.jobs.replace([*model.jobs.by_key.values()])
    feed.tick()
    assert feed.number == seen
    model.jobs.replace([])
    feed.tick()
    assert feed.since(seen).jobs == {("team", "one")}


def test_many_objects_are_one_event_in_pieces(feed, frames, job):
    for number in range(2 * PIECE_ITEMS + 1):
        job(f"job-{number:03}")
    feed.join()
    frame = frames.of(Scope(cluster=False, everywhere=True), NEVER)
    assert len(frame) == 3
    assert len(parsed(text(frame))["jobs"]["changed"]) == 2 * PIECE_ITEMS + 1


def test_compressed_pieces_of_any_frames_make_one_gzip_stream(feed, frames, job):
    for number in range(2 * PIECE_ITEMS):
        job(f"job-{number:03}")
    seen = feed.join()
    job("later")
    feed.tick()
    shown = [frames.of(ALL, NEVER), frames.of(ALL, seen), Frame([])]
    encode, sent = Gzip(), b""
    for frame in shown:
        sent += b"".join(encode.piece((frame, number)) for number in range(len(frame)))
    sent += encode.piece(b":\n\n") + encode.end()
    assert gzip.decompress(sent).decode() == "".join(map(text, shown)) + ":\n\n"
    assert len(sent) < len("".join(map(text, shown))) / 3


def test_what_was_sent_of_a_gzip_stream_can_be_read_at_once(feed, frames, job):
    encode, reader = Gzip(), zlib.decompressobj(31)
    assert reader.decompress(encode.piece(b"data: 1\n\n")) == b"data: 1\n\n"
    assert reader.decompress(deflated(b"data: 2\n\n")) == b"data: 2\n\n"


def test_while_nobody_listens_nothing_is_kept(feed, job):
    job("one")
    seen = feed.join()
    feed.leave()
    job("two")
    feed.join()
    assert feed.since(seen).jobs == frozenset()


def test_a_user_has_so_many_streams_and_a_place_that_is_lost_is_free():
    limits = StreamLimits()
    places = [limits.take(who="u", peer="p") for _ in range(MAX_OF_USER)]
    with pytest.raises(Denied, match="user u has 4 streams"):
        limits.take(who="u", peer="p")
    places.pop().free()
    places.append(limits.take(who="u", peer="p"))
    del places
    assert len(limits) == 0


def test_so_many_streams_there_are_at_an_address_and_in_all():
    limits, places = StreamLimits(), []
    with pytest.raises(Denied, match="address p has 16 streams"):
        places.extend(limits.take(who=str(number), peer="p") for number in range(17))
    places = []
    with pytest.raises(Denied, match="this server has 64 streams"):
        places.extend(limits.take(who=str(number), peer=str(number)) for number in range(65))


@pytest.fixture
async def seen(server, rights):
    """Makes the visibility of a user, begun with the namespaces that have jobs."""

    async def begin(name="tenant", *, asked="", there=("team", "others")):
        made = Visibility(rights, Caller(f"Bearer {name}-token", "p"), User(name), asked=asked)
        await made.begin(there)
        return made

    return begin


async def test_a_listener_sees_what_the_api_server_lets_him_list(seen):
    assert (await seen()).scope == TENANT
    assert (await seen("admin")).scope == ALL
    assert (await seen("other")).scope == Scope(cluster=True)


async def test_who_names_a_namespace_hears_of_that_alone(seen):
    made = await seen("admin", asked="others")
    assert made.scope.namespaces == {"others"}
    with pytest.raises(Denied, match="tenant may not list"):
        await seen(asked="others")


async def test_a_namespace_that_is_new_is_asked_about_once(seen, server):
    made, before = await seen(), server.reviews
    server.rights.add(("tenant", "gpujobs", "new"))
    assert await made.meet(["team", "new", "foreign"]) == {"new"}
    assert made.scope.namespaces == {"team", "new"}
    assert await made.meet(["new", "foreign"]) == frozenset()
    assert server.reviews == before + 2


async def test_where_there_are_too_many_namespaces_one_has_to_be_named(seen):
    with pytest.raises(CallWrong, match="name one"):
        await seen(there=[f"team-{number}" for number in range(257)])


async def test_a_stream_ends_where_more_namespaces_come_than_can_be_asked_about(seen):
    made = await seen(there=[f"team-{number}" for number in range(256)])
    with pytest.raises(CallWrong, match="name one; there are 257"):
        await made.meet(["team-256"])


@pytest.mark.parametrize("kind", ["gpujobs", "gpunodes/summary"])
async def test_a_right_that_is_taken_away_is_noticed(seen, server, kind, forget_rights):
    made = await seen()
    await made.again()
    server.rights -= {("tenant", kind, ""), ("tenant", kind, "team")}
    forget_rights()
    with pytest.raises(RightLost, match="any more"):
        await made.again()


async def test_a_look_that_half_failed_forgets_no_namespace(seen, server, rights, monkeypatch):
    server.rights.add(("tenant", "gpujobs", "second"))
    made = await seen(there=("second", "team"))
    list_ = rights.may_list

    async def answers_of_one(user, kind, namespace):
        if namespace == "team":
            raise KubeError("no answer")
        return await list_(user, kind, namespace)

    monkeypatch.setattr(rights, "may_list", answers_of_one)
    with pytest.raises(KubeError):
        await made.again()
    await made.meet(("others",))
    assert made.scope.namespaces == {"second", "team"}


async def test_a_token_that_is_not_valid_any_more_is_noticed(seen, server, forget_rights):
    made = await seen()
    del server.users["tenant-token"]
    forget_rights()
    with pytest.raises(Denied, match="the token is not valid"):
        await made.again()


@pytest.fixture
def heard(feed, frames, model, seen):
    """All that a listener is told until the stream ends by itself."""

    async def listen(*, during=lambda: None, seconds=0, full=False, name="tenant"):
        events = Events(feed, frames, await seen(name), model.missing, full=full, seconds=seconds)
        told = []

        async def take():
            told.extend(
                [
                    what if isinstance(what, bytes) else what[0].text(what[1])
                    async for what in events.told()
                ]
            )

        task = asyncio.create_task(take())
        while not (told or feed.listeners or task.done()):
            await asyncio.sleep(0)
        during()
        async with asyncio.timeout(30):
            await task
        assert feed.listeners == 0
        return b"".join(told).decode()

    return listen


async def test_a_listener_hears_of_changes_from_then_on(heard, feed, job):
    job("before")

    def change():
        job("one")
        feed.tick()
        asyncio.get_running_loop().call_later(0.1, feed.end, "the server stops")

    told = parsed(await heard(during=change))
    assert names(told["jobs"]["changed"]) == ["one"]
    assert told["bye"] == {"reason": "Stopping", "message": "the server stops"}


async def test_a_stream_ends_when_its_time_is_over(heard, job):
    job("before")
    told = parsed(await heard(seconds=0.1, full=True))
    assert names(told["jobs"]["changed"]) == ["before"]
    assert told["bye"]["reason"] == "Over"


async def test_a_stream_ends_when_nothing_is_heard_of_the_cluster(heard, feed, watched):
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
async def test_a_stream_ends_with_the_right_to_it(
    heard, server, monkeypatch, forget_rights, lose, reason
):
    monkeypatch.setattr(stream, "AGAIN_SECONDS", 0.1)

    def take_away():
        lose(server)
        forget_rights()

    assert parsed(await heard(during=take_away))["bye"]["reason"] == reason


async def test_what_is_silent_is_kept_open_by_comments(heard, monkeypatch):
    monkeypatch.setattr(stream, "BEAT_SECONDS", 0.05)
    assert (await heard(seconds=0.3)).count(":\n\n") > 2


async def test_the_call_answers_server_sent_events(call, job):
    job("mine")
    job("secret", namespace="others")
    found = await call("events", user="tenant", full=True, seconds=1)
    assert found.type.startswith("text/event-stream")
    told = parsed(found.text)
    assert names(told["jobs"]["changed"]) == ["mine"]
    assert told["nodes"]["changed"]
    assert told["bye"]["reason"] == "Over"
    assert "secret" not in found.text


async def test_the_call_is_refused_as_others_are(call, job):
    job("secret", namespace="others")
    assert (await call("events", user="")).status == 401
    refused = await call("events", user="tenant", namespace="others")
    assert (refused.status, refused.type) == (403, "application/problem+json")


async def test_a_node_that_comes_is_told(feed, frames, model):
    seen = feed.join()
    model.ledger.nodes.upsert(node("c"))
    model.ledger.gpus.upsert(gpu_node("c"))
    feed.tick()
    told = parsed(text(frames.of(ALL, seen)))
    assert [each["node_name"] for each in told["nodes"]["changed"]] == ["c"]
