# SPDX-License-Identifier: Apache-2.0
import gpu_gangs
import pytest
from gpu_gangs import bandwidths, resnet, sharing_viewers, transformer
from gpu_jobs import Broken


class Run:
    """Returns a result for each job by its name."""

    def __init__(self, **metrics):
        self.metrics = {name.replace("_", "-"): each for name, each in metrics.items()}
        self.specs = {}

    def run(self, manifest):
        name = manifest["metadata"]["name"]
        self.specs[name] = manifest["spec"]
        return self.metrics[name]


def buses(one_worker=300.0, shared=296.0, separate=27.5):
    return Run(
        bus_one_worker={"bus_gb_per_s": one_worker},
        bus_shared={"bus_gb_per_s": shared},
        bus_separate={"bus_gb_per_s": separate},
    )


def test_the_three_layouts_are_compared_in_one_run():
    run = buses()
    figures = bandwidths(run, 2)["figures"]
    assert figures["shared_to_one_worker"] == pytest.approx(0.987, abs=1e-3)
    layouts = {name: spec.get("podPerWorker") for name, spec in run.specs.items()}
    assert layouts == {"bus-one-worker": None, "bus-shared": False, "bus-separate": True}
    assert run.specs["bus-one-worker"]["gpus"] == 2


@pytest.mark.parametrize("slow", [{"shared": 200.0}, {"separate": 3.0}])
def test_a_layout_that_is_too_slow_fails_the_demo(slow):
    with pytest.raises(Broken):
        bandwidths(buses(**slow), 2)


class Statuses:
    """Statuses of ended gangs with given NVLink conditions."""

    def __init__(self, *, has_nvlink=True, shared="True", separate="False"):
        self.has_nvlink = has_nvlink
        self.said = {"bus-shared": shared, "bus-separate": separate}

    def status(self, name):
        probe = {"transport": "P2P/CUMEM", "bus_gb_per_s": 290.0}
        return {
            "conditions": [{"type": "FastCommunication", "status": self.said[name]}],
            "results": [{"worker": 0, "communication": probe}],
        }


def test_the_nvlink_condition_of_gangs_is_reported_with_the_probes_figures():
    figures = gpu_gangs.communication(Statuses())["figures"]
    assert figures["bus-shared"]["FastCommunication"] == "True"
    assert figures["bus-separate"]["probes"][0]["bus_gb_per_s"] == 290.0
    assert gpu_gangs.communication(Statuses(has_nvlink=False))["figures"] == {}


@pytest.mark.parametrize("wrong", [{"shared": "False"}, {"separate": "True"}])
def test_a_wrong_nvlink_condition_fails_the_demo(wrong):
    with pytest.raises(Broken, match="FastCommunication of bus-"):
        gpu_gangs.communication(Statuses(**wrong))


def test_nvlink_connects_gpus_of_one_clique():
    def connects(*cliques):
        gpus = [{} if each is None else {"nvlinkClique": each} for each in cliques]
        return gpu_gangs.Measured(None, gpus).has_nvlink

    assert connects(0, 0)
    assert not connects(0, 1)
    assert not connects(None, None)


def test_a_gang_that_does_not_scale_fails_the_demo():
    metrics = {"images_per_s": 5260, "one_gpu_images_per_s": 4854, "scaling_ratio": 1.08}
    with pytest.raises(Broken, match=r"1\.08 times"):
        resnet(Run(resnet50_shared=metrics), 2)


def test_the_transformer_has_as_many_rows_for_each_gpu_as_on_one():
    one = {"tokens_per_s": 100.0, "batch_size": 24}
    run = Run(
        transformer_one=one,
        transformer_ddp={"tokens_per_s": 198.0},
        transformer_fsdp={"tokens_per_s": 195.0},
    )
    figures = transformer(run, 2)["figures"]
    assert (figures["ddp_ratio"], figures["fsdp_ratio"]) == (1.98, 1.95)
    assert "--batch-size=48" in run.specs["transformer-ddp"]["workload"]["args"]


def test_viewers_share_a_pod():
    assert sharing_viewers(2)["spec"]["podPerWorker"] is False


class TwoGpus:
    def gpus(self):
        return [{"model": "NVIDIA H200"}] * 2


def test_checks_after_a_failed_one_still_run(monkeypatch):
    def slow(*_):
        raise Broken("too slow")

    monkeypatch.setattr(gpu_gangs, "isolation", lambda *_: {"check": "isolation"})
    monkeypatch.setattr(gpu_gangs, "bandwidths", slow)
    monkeypatch.setattr(gpu_gangs, "communication", lambda *_: {"check": "communication"})
    monkeypatch.setattr(gpu_gangs, "resnet", lambda *_: {"check": "resnet"})
    monkeypatch.setattr(gpu_gangs, "transformer", slow)
    found = []
    steps = (each["check"] for each in gpu_gangs.run_gangs(TwoGpus(), lambda _, step: step()))
    with pytest.raises(Broken, match="too slow; too slow"):
        found.extend(steps)
    assert found == [
        "isolation",
        "gangs: bandwidth",
        "communication",
        "resnet",
        "gangs: transformer",
    ]


def test_the_results_of_all_steps_are_kept(monkeypatch):
    for name in ("isolation", "bandwidths", "communication", "resnet", "transformer"):
        monkeypatch.setattr(gpu_gangs, name, lambda *_, name=name: {"check": name})
    steps = gpu_gangs.run_gangs(TwoGpus(), lambda _, step: step())
    assert [each["check"] for each in steps] == [
        "isolation",
        "bandwidths",
        "communication",
        "resnet",
        "transformer",
    ]
