# SPDX-License-Identifier: Apache-2.0
import pytest
from gpujobs import read_gpujob

from gpupack_kubeclient.resources import PODS
from gpupack_operator import watches
from gpupack_operator.audit import Audit, WatchedKind
from gpupack_operator.cache import READABLE_GPUJOBS, Cache
from gpupack_operator.errors import WatchStale
from gpupack_operator.kopf_session import GpuJobStream

PATH = "/api/v1/pods"


class Router:
    """Router that records GPUJobs and whether they are deleted."""

    def __init__(self, events):
        self.events = events

    def on_gpujob(self, seen, *, gone):
        self.events.append((seen.job.metadata.name, gone))


class Scene:
    """Pods in the API server, and what a watch has indexed of them."""

    def __init__(self, server):
        self.server = server
        self.indexed = {}
        self.cache = Cache()
        self.audit = Audit(server.api, self.cache, lambda uid: None, namespace="")

    def there(self, **versions):
        self.server.objects = {
            f"{PATH}/{uid}": {"metadata": {"name": uid, "uid": uid, "resourceVersion": version}}
            for uid, version in versions.items()
        }

    async def check(self):
        await self.audit.check(WatchedKind(PODS, "", lambda: self.indexed))


@pytest.fixture
def scene(server):
    return Scene(server)


async def test_an_indexed_pod_that_no_longer_exists_is_ignored(scene, build):
    scene.there(a="1")
    scene.indexed = {"a": "1", "pod-1-0": "1"}
    scene.cache.pods = {build.UID: [build.pod(0)]}
    await scene.check()
    assert scene.cache.pods_of(build.gpujob(), [build.job()]) == ()


async def test_a_gpujob_deleted_without_an_event_leaves_the_index(server):
    events, cache = [], Cache()
    gpujobs = watches.gpujobs_of(cache, Router(events))
    for name in ("train", "ghost"):
        meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1"}
        body = {"metadata": meta, "spec": {"gpus": 1}}
        gpujobs.upsert(read_gpujob(body))
        server.put(f"/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs/{name}", body)
    del server.objects["/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs/ghost"]
    events.clear()
    audit = Audit(server.api, cache, gpujobs.drop, namespace="")
    await audit.check(audit.kinds()[0])
    assert [key.name for key in cache.gpujobs] == ["train"]
    assert events == [("ghost", True)]
    cache.forget_deleted()
    assert cache._deleted == set()


async def test_a_delayed_event_does_not_prove_a_dead_watch(scene):
    scene.there(a="2")
    scene.indexed = {"a": "1"}
    await scene.check()
    scene.there(a="3")
    scene.indexed = {"a": "2"}
    await scene.check()


async def test_a_change_missing_for_two_audits_proves_a_dead_watch(scene):
    scene.there(a="2")
    scene.indexed = {"a": "1"}
    await scene.check()
    with pytest.raises(WatchStale, match="1 pods"):
        await scene.check()


async def test_an_existing_object_that_cannot_be_read_is_not_marked_deleted(scene):
    path = "/apis/gpupack.dev/v1beta1/gpujobs"
    meta = {"namespace": "team", "name": "x", "uid": "x", "resourceVersion": "2"}
    scene.server.put(f"{path}/x", {"metadata": meta, "spec": {"gpus": "many"}})
    for _ in range(2):
        await scene.audit.check(WatchedKind(READABLE_GPUJOBS, "", lambda: {"x": "1"}))
    assert scene.cache._deleted == set()


async def test_a_gpujob_that_the_watch_skipped_does_not_prove_a_dead_watch(server):
    path = "/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs"
    for name in ("passed", "unheard"):
        meta = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "2"}
        server.put(f"{path}/{name}", {"metadata": meta, "spec": {"gpus": 1}})
    stream = GpuJobStream()
    stream.skip("team/passed", "no parser reads it")
    stream.skip("team/unheard", "no parser reads it")
    audit = Audit(server.api, Cache(), lambda uid: None, skipped=stream.skipped, namespace="")
    for _ in range(2):
        await audit.check(audit.kinds()[0])
    stream.record_read("team/unheard")
    await audit.check(audit.kinds()[0])
    with pytest.raises(WatchStale, match="1 gpujobs"):
        await audit.check(audit.kinds()[0])


async def test_an_unreadable_object_does_not_stop_the_audit(scene):
    """Such as a GPUJob that a newer release wrote."""
    scene.there(a="1", b="1")
    path = "/apis/gpupack.dev/v1beta1/gpujobs"
    meta = {"namespace": "team", "name": "x", "uid": "x", "resourceVersion": "1"}
    scene.server.put(f"{path}/x", {"metadata": meta, "spec": {"gpus": "many"}})
    scene.server.put(f"{path}/y", {"metadata": meta | {"uid": "y"}, "spec": {"gpus": 1}})
    watched = WatchedKind(READABLE_GPUJOBS, "", lambda: {"y": "1", "ghost": "1"})
    for _ in range(2):
        await scene.audit.check(watched)
    assert scene.cache._deleted == {"ghost"}
