# SPDX-License-Identifier: Apache-2.0
"""Burn-ins decide whether new and recovered GPUs are used."""

import msgspec
import pytest

from gpupack_crds.acceptance import Acceptance, parse_acceptance
from gpupack_crds.errors import AcceptanceInvalid
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.gpunode import GpuNodeStatus, Maintenance, Measured, Quarantine
from gpupack_crds.kinds import GpuJob, GpuNode
from gpupack_crds.names import ACCEPTANCE_NAMESPACE, MAX_JOB_NAME
from gpupack_operator.decision import acceptance
from gpupack_operator.decision.fleet import Fleet
from gpupack_operator.decision.quarantine import NEW_GPU, REPAIRED_GPU, Rules, decide_entries
from gpupack_operator.manifests.acceptance import gpujob, job_name
from gpupack_operator.metrics import Metrics
from gpupack_operator.quarantines import Quarantines

PROBATION = 600.0
SECONDS = 900
NODE = "/apis/gpupack.dev/v1beta1/gpunodes/a"
JOBS = f"/apis/gpupack.dev/v1beta1/namespaces/{ACCEPTANCE_NAMESPACE}/gpujobs"
FIGURES = {
    "gemm_tflops": 614.9,
    "device_copy_gb_per_s": 4100.5,
    "host_to_device_gb_per_s": 55.1,
    "device_to_host_gb_per_s": 54.2,
}


def device(number, health="Healthy", **fields):
    about = {"uuid": f"GPU-{number}", "index": number, "model": "NVIDIA H200", "health": health}
    return {
        "memoryMiB": 143771,
        "cause": "XID 79" if health != "Healthy" else "",
        **about,
        **fields,
    }


def node(*devices, quarantine=(), measured=(), name="a", **status):
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "3"}
    reported = {"devices": list(devices), "measured": [msgspec.to_builtins(m) for m in measured]}
    spec = {"quarantine": [msgspec.to_builtins(entry) for entry in quarantine]}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": reported | status}, GpuNode)


@pytest.fixture
def accepting(build):
    """Make an entry that has been in acceptance since a second."""

    def entry(number, since=0, **fields):
        found = {"phase": "Acceptance", "cause": "XID 79", "since": build.stamp(since)} | fields
        return Quarantine(gpu=f"GPU-{number}", **found)

    return entry


@pytest.fixture
def verdict(build):
    """Make the measurement of a GPU at a second."""

    def found(number, outcome="Passed", at=0, **fields):
        return Measured(gpu=f"GPU-{number}", at=build.stamp(at), outcome=outcome, **fields)

    return found


@pytest.fixture
def after(build):
    """Return the entries at a second, and the seconds until the next check."""

    def decide(seconds, seen, **rules):
        how = Rules(PROBATION, Acceptance(timeout_seconds=SECONDS), **rules)
        entries, again = decide_entries(seen, build.at(seconds), how)
        return entries, again and (again - build.at(seconds)).total_seconds()

    return decide


@pytest.fixture
def acceptance_job(build):
    """A burn-in as the API shows it: GPUs by number, and the metrics of each or None."""

    def job(results=None, *, phase="Succeeded", ended=10, kind="burn-in", **fields):
        gpus = [f"GPU-{number}" for number in results or {}]
        spec = {"gpus": 1, "workers": max(len(gpus), 1)}
        if kind == "all-reduce":
            spec = {"gpus": fields.pop("gpus", 2)}
        reported = [
            {"worker": worker, "workload": "burn-in", "headline": "healthy", "metrics": metrics}
            for worker, metrics in enumerate((results or {}).values())
            if metrics is not None
        ]
        place = {"node": "a", "workers": f"0-{len(gpus) - 1}", "gpus": gpus, "memoryMiB": [1]}
        status = {"phase": phase, "results": reported, "message": "it broke", **fields}
        if gpus:
            status["placement"] = [place]
        if phase in {"Succeeded", "Failed"}:
            status["finishedAt"] = build.stamp(ended)
        annotations = {"gpupack.dev/acceptance-of": "a"}
        meta = {
            "name": job_name("a", kind),
            "namespace": ACCEPTANCE_NAMESPACE,
            "uid": f"uid-{kind}",
            "annotations": annotations,
        }
        return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, GpuJob)

    return job


def phases(entries):
    return [(each.gpu, each.phase, each.relapses) for each in entries]


def test_a_recovered_gpu_is_tested_by_a_burn_in(after):
    ill = Quarantine(gpu="GPU-0", cause="XID 79", since="2026-11-21T11:00:00Z")
    (entry,), again = after(0, node(device(0), quarantine=[ill]))
    assert (entry.phase, entry.cause, again) == ("Acceptance", "XID 79", SECONDS)


@pytest.mark.parametrize(
    "fields", [{"migParent": "GPU-0"}, {"resource": "nvidia.com/gpu"}, {"model": "NVIDIA L4"}]
)
def test_a_gpu_that_no_burn_in_can_test_goes_on_probation(build, fields):
    ill = Quarantine(gpu="GPU-0", since=build.stamp(-5))
    rules = Rules(PROBATION, Acceptance(models=("H200",)))
    (entry,), _ = decide_entries(node(device(0, **fields), quarantine=[ill]), build.at(0), rules)
    assert entry.phase == "Probation"


def test_a_gpu_that_passed_its_burn_in_is_released(after, accepting, verdict):
    assert after(20, node(device(0), quarantine=[accepting(0)])) != ((), None)
    seen = node(device(0), quarantine=[accepting(0)], measured=[verdict(0, at=10)])
    assert after(20, seen) == ((), None)


def test_measurements_from_before_the_failure_are_ignored(after, accepting, verdict):
    seen = node(device(0), quarantine=[accepting(0)], measured=[verdict(0, at=-10)])
    (entry,), _ = after(20, seen)
    assert entry == accepting(0)


def test_quarantine_doubles_with_each_failed_burn_in(after, accepting, verdict):
    entry = accepting(0)
    for relapses in (1, 2, 3):
        wrong = [verdict(0, "Failed", at=10, message="wrong_words is 3")]
        (kept,), again = after(20, node(device(0), quarantine=[entry], measured=wrong))
        assert phases([kept]) == [("GPU-0", "Quarantined", relapses)]
        assert kept.cause == "its burn-in failed: wrong_words is 3"
        assert again == PROBATION * 2**relapses
        seconds = 20 + int(again)
        assert after(seconds - 1, node(device(0), quarantine=[kept]))[0] == (kept,)
        (tried,), _ = after(seconds, node(device(0), quarantine=[kept]))
        assert (tried.phase, tried.until, tried.relapses) == ("Acceptance", None, relapses)
        entry = msgspec.structs.replace(tried, since=accepting(0).since)


def test_a_gpu_without_a_verdict_goes_on_probation(after, accepting, verdict):
    seen = node(device(0), quarantine=[accepting(0)], measured=[verdict(0, "Unknown", at=10)])
    (entry,), again = after(20, seen)
    assert (entry.phase, again) == ("Probation", PROBATION)


def test_a_gpu_that_fails_during_acceptance_is_quarantined_again(after, accepting):
    (entry,), _ = after(5, node(device(0, "Failed"), quarantine=[accepting(0)]))
    assert phases([entry]) == [("GPU-0", "Quarantined", 1)]


def test_entries_in_acceptance_go_on_probation_if_burn_ins_are_disabled(build, accepting):
    (entry,), _ = decide_entries(
        node(device(0), quarantine=[accepting(0)]), build.at(5), Rules(PROBATION)
    )
    assert entry.phase == "Probation"


def test_a_hanging_driver_changes_no_phase(after, accepting):
    silent = device(0, "Cordoned", causes=["NotInspected"])
    assert after(5, node(silent, quarantine=[accepting(0)]))[0] == (accepting(0),)


def test_new_gpus_are_tested_once_if_enabled(build, verdict):
    rules = Rules(PROBATION, Acceptance(new_gpus=True))
    seen = node(device(0), device(1), device(2, "Failed"), measured=[verdict(1, "Unknown")])
    first, ill = sorted(decide_entries(seen, build.at(0), rules)[0], key=lambda each: each.gpu)
    assert (first.gpu, first.phase, first.cause) == ("GPU-0", "Acceptance", NEW_GPU)
    assert (ill.gpu, ill.phase) == ("GPU-2", "Quarantined")
    assert decide_entries(seen, build.at(0), Rules(PROBATION, Acceptance()))[0] == (ill,)


def slower(part):
    """Return measurements that are a fraction of the usual ones."""
    return {"tflops": 600.0 * part, "memory_gb_per_s": 4000.0}


@pytest.fixture
def fleet(verdict):
    """Nodes of a GPU each, all alike."""

    def known(count, *, model="NVIDIA H200", **fields):
        fleet = Fleet()
        for number in range(10, 10 + count):
            figures = slower(1.0) | fields
            about = device(number, model=model)
            fleet.put(node(about, measured=[verdict(number, **figures)], name=f"n{number}"))
        return fleet

    return known


def test_a_gpu_slower_than_others_of_its_model_is_used_last(after, accepting, verdict, fleet):
    measured = [verdict(0, at=10, **slower(0.89))]
    seen = node(device(0), quarantine=[accepting(0)], measured=measured)
    (entry,), _ = after(20, seen, fleet=fleet(3))
    assert entry.phase == "Slow"
    assert entry.cause == "534 TFLOP/s; the median of 3 others is 600"
    stays = node(device(0), quarantine=[entry], measured=measured)
    assert after(999_999, stays, fleet=fleet(3)) == ((entry,), None)


@pytest.mark.parametrize("part", [0.9, 1.0, 2.0])
def test_a_gpu_within_a_tenth_of_the_median_is_not_slow(after, accepting, verdict, fleet, part):
    measured = [verdict(0, at=10, **slower(part))]
    seen = node(device(0), quarantine=[accepting(0)], measured=measured)
    assert after(20, seen, fleet=fleet(5)) == ((), None)


@pytest.mark.parametrize(
    ("count", "fields"),
    [(2, {}), (9, {"model": "NVIDIA H200 NVL"}), (9, {"simulated": True}), (9, {"tflops": None})],
)
def test_a_gpu_is_compared_only_with_enough_gpus_of_the_same_kind(verdict, fleet, count, fields):
    others = fleet(count, **fields)
    assert others.slowness("NVIDIA H200", verdict(0, tflops=1.0)) == ""


def test_removed_and_failed_gpus_are_not_compared(verdict, fleet):
    others = fleet(3)
    others.remove("n10")
    assert others.slowness("NVIDIA H200", verdict(0, tflops=1.0)) == ""
    others = fleet(3)
    failed = verdict(10, "Failed", **slower(1.0))
    others.put(node(device(10), measured=[failed], name="n10"))
    assert others.slowness("NVIDIA H200", verdict(0, tflops=1.0)) == ""


def measured(seen, build, seconds, **jobs):
    named = {name.replace("_", "-"): job for name, job in jobs.items()}
    return acceptance.updated_measurements(
        seen, named, Acceptance(timeout_seconds=SECONDS), build.at(seconds)
    )


def test_burn_in_results_are_read_for_each_worker(build, accepting, acceptance_job):
    seen = node(*map(device, range(3)), quarantine=[accepting(n) for n in range(3)])
    sick = {"healthy": False, "findings": "max_wrong_words: 3 > 0", "gemm_tflops": 1.5}
    job = acceptance_job({1: {"healthy": True} | FIGURES, 2: sick, 0: None})
    found = {each.gpu: each for each in measured(seen, build, 20, burn_in=job)}
    assert {gpu: each.outcome for gpu, each in found.items()} == {
        "GPU-0": "Unknown",
        "GPU-1": "Passed",
        "GPU-2": "Failed",
    }
    one = found["GPU-1"]
    figures = (one.tflops, one.memory_gb_per_s)
    assert figures == (614.9, 4100.5)
    assert (one.host_to_device_gb_per_s, one.device_to_host_gb_per_s) == (55.1, 54.2)
    assert found["GPU-2"].message == "max_wrong_words: 3 > 0"
    assert found["GPU-0"].message == "its burn-in left no verdict: it broke"


@pytest.mark.parametrize("figure", ["1e9", True, -1, float("nan"), float("inf"), None])
def test_an_invalid_figure_is_not_written(build, accepting, acceptance_job, figure):
    seen = node(device(0), quarantine=[accepting(0)])
    job = acceptance_job({0: {"healthy": True, "gemm_tflops": figure}})
    (found,) = measured(seen, build, 20, burn_in=job)
    assert (found.outcome, found.tflops) == ("Passed", None)


def test_a_burn_in_from_before_acceptance_is_ignored(build, accepting, acceptance_job):
    seen = node(device(0), quarantine=[accepting(0, since=11)])
    job = acceptance_job({0: {"healthy": True}}, ended=10)
    assert measured(seen, build, 20, burn_in=job) == ()
    assert acceptance.is_obsolete(job, "burn-in", 1)


def test_results_of_gpus_that_are_not_in_acceptance_are_ignored(build, accepting, acceptance_job):
    seen = node(device(0), device(1), quarantine=[accepting(0)])
    found = measured(
        seen, build, 20, burn_in=acceptance_job({0: {"healthy": True}, 1: {"healthy": True}})
    )
    assert [each.gpu for each in found] == ["GPU-0"]


def test_a_burn_in_that_never_ran_gives_the_outcome_unknown(build, accepting, acceptance_job):
    seen = node(device(0), device(1), quarantine=[accepting(0), accepting(1)])
    found = measured(seen, build, 20, burn_in=acceptance_job(phase="Failed"))
    assert {each.outcome for each in found} == {"Unknown"}
    assert found[0].message == "no burn-in ran: it broke"


def test_a_missing_result_becomes_unknown_at_the_deadline(build, accepting):
    seen = node(device(0), quarantine=[accepting(0)])
    assert measured(seen, build, SECONDS - 1) == ()
    (found,) = measured(seen, build, SECONDS)
    assert (found.outcome, found.message) == (
        "Unknown",
        f"no burn-in reported a result within {SECONDS} s",
    )


def test_figures_survive_an_unknown_outcome_and_are_dropped_with_the_gpu(build, accepting, verdict):
    before = [verdict(0, at=-99, tflops=600.0), verdict(7, at=-99, tflops=1.0)]
    seen = node(device(0), quarantine=[accepting(0)], measured=before)
    (found,) = measured(seen, build, SECONDS)
    assert (found.outcome, found.tflops) == ("Unknown", 600.0)
    unseen = node(quarantine=[accepting(0)], measured=before)
    assert measured(unseen, build, 5) == tuple(before)


def test_an_all_reduce_runs_once_all_gpus_of_a_node_have_passed(
    build, after, accepting, verdict, acceptance_job
):
    entries = [accepting(0), accepting(1)]
    one = node(device(0), device(1), quarantine=entries, measured=[verdict(0, at=10)])
    assert (acceptance.all_reduce_gpus(one), after(20, one)[0]) == (0, tuple(entries))
    passed = [verdict(0, at=10), verdict(1, at=12)]
    both = node(device(0), device(1), quarantine=entries, measured=passed)
    assert (acceptance.all_reduce_gpus(both), after(20, both)[0]) == (2, tuple(entries))
    results = {0: {"all_reduce_bus_gb_per_s": 390.5}}
    done = acceptance.updated_all_reduce(
        both, {"all-reduce": acceptance_job(results, kind="all-reduce", ended=15)}, build.at(20)
    )
    assert (done.gpus, done.bus_gb_per_s, done.message) == (2, 390.5, "")
    status = msgspec.structs.replace(both.status, all_reduce=done)
    reported = msgspec.structs.replace(both, status=status)
    assert (acceptance.all_reduce_gpus(reported), after(21, reported)) == (0, ((), None))


def test_a_failed_or_late_all_reduce_does_not_keep_gpus_in_acceptance(
    build, after, accepting, verdict, acceptance_job
):
    entries, passed = [accepting(0), accepting(1)], [verdict(0, at=10), verdict(1, at=12)]
    both = node(device(0), device(1), quarantine=entries, measured=passed)
    broken = acceptance_job(kind="all-reduce", phase="Failed", ended=15)
    done = acceptance.updated_all_reduce(both, {"all-reduce": broken}, build.at(20))
    assert (done.bus_gb_per_s, done.message) == (None, "it broke")
    assert after(SECONDS, both) == ((), None)


def test_a_gpu_does_not_wait_for_a_busy_or_failed_gpu_of_its_node(after, accepting, verdict):
    alone = node(device(0), device(1), quarantine=[accepting(0)], measured=[verdict(0, at=10)])
    assert after(20, alone) == ((), None)
    outcomes = [verdict(0, at=10), verdict(1, "Failed", at=10)]
    entries = [accepting(0), accepting(1)]
    one = node(device(0), device(1), quarantine=entries, measured=outcomes)
    assert phases(after(20, one)[0]) == [("GPU-1", "Quarantined", 1)]


@pytest.mark.parametrize(
    ("phase", "workers", "wanted", "over"),
    [
        ("Running", 2, 2, False),
        ("Running", 2, 1, False),
        ("Running", 2, 0, True),
        ("Pending", 2, 2, False),
        ("Pending", 2, 1, True),
        ("Pending", 2, 0, True),
        ("Succeeded", 2, 2, True),
        ("Succeeded", 2, 0, False),
    ],
)
def test_an_obsolete_acceptance_job_is_deleted(acceptance_job, phase, workers, wanted, over):
    job = acceptance_job(dict.fromkeys(range(workers)), phase=phase)
    assert acceptance.is_obsolete(job, "burn-in", wanted) is over


@pytest.mark.parametrize("trial_name", ["burn-in", "all-reduce"])
def test_acceptance_jobs_are_valid_gpujobs(trial_name):
    found = node(device(0), device(1)).status.devices
    long_name = "n" * 253
    body = gpujob(long_name, trial_name, found, seconds=60, args=["--seconds=30"])
    spec = msgspec.convert(body["spec"], GpuJobSpec)
    assert len(body["metadata"]["name"]) <= MAX_JOB_NAME - len("-1-99")
    assert "--require-gpu" in spec.workload.args
    assert spec.workers * spec.gpus == 2
    assert (
        body["metadata"]["name"]
        != gpujob("other", trial_name, found, seconds=1, args=())["metadata"]["name"]
    )


def test_simulated_gpus_are_tested_without_require_gpu():
    found = node(device(0, simulated=True)).status.devices
    assert gpujob("a", "burn-in", found, seconds=60, args=())["spec"]["workload"]["args"] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"enabled": false}', None),
        ('{"enabled": true, "newGpus": true, "models": ["H200"]}', ("H200",)),
    ],
)
def test_the_acceptance_setting_of_the_chart_is_parsed(text, found):
    read = parse_acceptance(text)
    assert (read and read.models) == found


@pytest.mark.parametrize(
    "text", ["", "[]", '{"models": [" "]}', '{"timeoutSeconds": 0}', '{"x": 1}']
)
def test_an_invalid_acceptance_setting_is_refused(text):
    with pytest.raises(AcceptanceInvalid):
        parse_acceptance(text)


@pytest.fixture
def quarantines(server, build):
    clock = {"now": 0}
    rules = Rules(PROBATION, Acceptance(timeout_seconds=SECONDS))
    made = Quarantines(
        server.api,
        reporter="o",
        rules=rules,
        now=lambda: build.at(clock["now"]),
        metrics=Metrics(),
    )
    made.clock = clock
    return made


async def test_no_acceptance_job_is_created_or_deleted_before_jobs_and_nodes_are_listed(
    server, quarantines, accepting, acceptance_job
):
    quarantines.upsert(node(device(0), quarantine=[accepting(0)]))
    await quarantines.write_changes()
    quarantines.replace([node(device(0), quarantine=[accepting(0)])])
    await quarantines.write_changes()
    quarantines.acceptance_tests.upsert(acceptance_job({0: None}, phase="Running"))
    await quarantines.write_changes()
    assert server.writes == []


async def test_each_step_from_acceptance_to_release_is_written(
    server, quarantines, accepting, acceptance_job
):
    server.put(NODE, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    seen = node(device(0), quarantine=[accepting(0)])
    quarantines.acceptance_tests.replace([])
    quarantines.replace([seen])
    await quarantines.write_changes()
    (path,) = server.names("POST")
    assert path == JOBS
    quarantines.clock["now"] = 20
    quarantines.acceptance_tests.upsert(acceptance_job({0: {"healthy": True} | FIGURES}))
    await quarantines.write_changes()
    written = server.objects[NODE]["status"]["measured"]
    assert [each["outcome"] for each in written] == ["Passed"]
    status = msgspec.convert({"devices": [device(0)], "measured": written}, GpuNodeStatus)
    version = server.objects[NODE]["metadata"]["resourceVersion"]
    metadata = msgspec.structs.replace(seen.metadata, resource_version=version)
    quarantines.upsert(msgspec.structs.replace(seen, metadata=metadata, status=status))
    await quarantines.write_changes()
    assert server.objects[NODE]["spec"]["quarantine"] is None


async def test_a_quarantined_gpu_is_tested_after_its_gpunode_was_deleted(
    server, quarantines, build
):
    server.put(NODE, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    ill = Quarantine(gpu="GPU-1", cause="XID 79", since=build.stamp(-5))
    before = node(device(0), device(1, "Failed"), quarantine=[ill])
    quarantines.replace([before])
    quarantines.remove(before)
    for seen in (node(), node(device(0), device(1))):
        quarantines.upsert(seen)
        await quarantines.write_changes()
    (entry,) = server.objects[NODE]["spec"]["quarantine"]
    assert (entry["gpu"], entry["phase"], entry["cause"]) == ("GPU-1", "Acceptance", REPAIRED_GPU)
    quarantines.upsert(node(device(0), device(1), quarantine=[msgspec.convert(entry, Quarantine)]))
    quarantines.upsert(node(device(0), device(1)))
    quarantines.clock["now"] = 99
    await quarantines.write_changes()
    assert server.names("PATCH") == [NODE]


async def test_a_quarantined_gpu_is_tested_if_only_a_list_shows_that_its_gpunode_was_deleted(
    server, quarantines, build
):
    server.put(NODE, {"metadata": {"name": "a", "resourceVersion": "3"}, "spec": {}})
    ill = Quarantine(gpu="GPU-1", cause="XID 79", since=build.stamp(-5))
    before = node(device(0), device(1, "Failed"), quarantine=[ill])
    recreated = node(device(0), device(1))
    meta = msgspec.structs.replace(recreated.metadata, uid="another")
    recreated = msgspec.structs.replace(recreated, metadata=meta)
    for items in ([before], [], [recreated]):
        quarantines.replace(items)
    await quarantines.write_changes()
    (entry,) = server.objects[NODE]["spec"]["quarantine"]
    assert (entry["gpu"], entry["phase"], entry["cause"]) == ("GPU-1", "Acceptance", REPAIRED_GPU)


def in_maintenance(seen, *gpus):
    entries = (Maintenance(reason="fan", gpus=gpus),)
    return msgspec.structs.replace(
        seen, spec=msgspec.structs.replace(seen.spec, maintenance=entries)
    )


@pytest.mark.parametrize("gpus", [(), ("GPU-0",)])
def test_a_gpu_in_maintenance_is_tested_after_the_maintenance(build, accepting, gpus):
    entry, rules = accepting(0), Rules(PROBATION, Acceptance(timeout_seconds=SECONDS))
    seen = in_maintenance(node(device(0), quarantine=[entry]), *gpus)
    assert acceptance.untested_gpus(seen) == ()
    assert acceptance.updated_measurements(seen, {}, rules.acceptance, build.at(SECONDS)) == ()
    (waits,), again = decide_entries(seen, build.at(SECONDS), rules)
    assert (waits.phase, waits.since, again) == ("Acceptance", None, None)
    (begins,), _ = decide_entries(node(device(0), quarantine=[waits]), build.at(5 * SECONDS), rules)
    assert (begins.phase, begins.since[:19]) == ("Acceptance", build.stamp(5 * SECONDS)[:19])


def test_maintenance_of_one_gpu_does_not_delay_another(build, accepting):
    entries = [accepting(0), accepting(1)]
    seen = in_maintenance(node(device(0), device(1), quarantine=entries), "GPU-1")
    assert acceptance.untested_gpus(seen) == ("GPU-0",)


async def test_a_running_job_of_an_unknown_node_is_deleted_and_a_finished_one_stays(
    server, quarantines, acceptance_job
):
    running, ended = (
        acceptance_job({0: None}, phase="Running"),
        acceptance_job({0: None}, kind="all-reduce"),
    )
    for job in (running, ended):
        server.put(f"{JOBS}/{job.metadata.name}", {"metadata": {"uid": job.metadata.uid}})
    quarantines.replace([])
    quarantines.acceptance_tests.replace([running, ended])
    await quarantines.write_changes()
    assert server.names("DELETE") == [f"{JOBS}/{running.metadata.name}"]


async def test_a_change_during_a_write_is_processed_in_the_next_pass(
    server, quarantines, accepting, acceptance_job, monkeypatch
):
    old = acceptance_job({0: {"healthy": True}}, ended=-5)
    server.put(f"{JOBS}/{old.metadata.name}", {"metadata": {"uid": old.metadata.uid}})
    quarantines.acceptance_tests.replace([old])
    quarantines.replace([node(device(0), quarantine=[accepting(0)])])
    delete = quarantines.acceptance_tests.delete

    async def seen_before_it_is_answered(job):
        await delete(job)
        quarantines.acceptance_tests.remove(job)

    monkeypatch.setattr(quarantines.acceptance_tests, "delete", seen_before_it_is_answered)
    await quarantines.write_changes()
    await quarantines.write_changes()
    assert server.names("POST") == [JOBS]


async def test_a_node_that_is_deleted_during_a_pass_is_skipped(
    server, quarantines, build, monkeypatch
):
    ill = [Quarantine(gpu="GPU-0", since=build.stamp(0))]
    nodes = [node(device(0), quarantine=ill, name=name) for name in ("a", "b")]
    quarantines.replace(nodes)
    see = quarantines._write_node

    async def other_goes(seen, now):
        quarantines.remove(nodes[1])
        return await see(seen, now)

    monkeypatch.setattr(quarantines, "_write_node", other_goes)
    await quarantines.write_changes()


async def test_a_refused_write_is_retried(server, quarantines, accepting, acceptance_job):
    server.refuse = {"gpujobs": (403, "Forbidden")}
    quarantines.acceptance_tests.replace([])
    quarantines.replace([node(device(0), quarantine=[accepting(0)])])
    await quarantines.write_changes()
    server.refuse = {}
    quarantines.clock["now"] = 10
    await quarantines.write_changes()
    assert server.names("POST")[-1] == JOBS
