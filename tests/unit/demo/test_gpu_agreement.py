# SPDX-License-Identifier: Apache-2.0
import json
import threading

import gpu_agreement
import pytest
from gpu_agreement import Agreement, PodDevices
from gpu_jobs import Broken

GPU, OTHER = "GPU-a", "GPU-b"
AGREED = PodDevices(
    annotation=(GPU,),
    shares=False,
    environment=frozenset({(GPU,)}),
    spec=(GPU,),
    tickets=1,
    on=frozenset({GPU}),
)


def pod_devices(**changes):
    return PodDevices(**{**AGREED.__dict__, **changes})


def seen(*looks):
    found = Agreement(look=dict)
    for look in looks:
        found.see({"uid": ("p", look)})
    return found


def test_agreeing_pods_and_computing_pods_are_counted():
    result = seen(AGREED, pod_devices(on=frozenset())).result()["figures"]
    assert (result["pods"], result["seen computing by the driver"], result["looks"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment": frozenset({(OTHER,)})}, "its environment says"),
        ({"environment": frozenset({(GPU,), (OTHER,)})}, "its environment says"),
        ({"spec": (OTHER,)}, "its CDI spec says"),
        ({"spec": None}, "its CDI spec says None"),
        ({"tickets": 2}, "the kubelet counts 2 devices, of 1"),
        ({"tickets": 0, "shares": True}, "the kubelet counts 0 devices, of 1"),
        ({"on": frozenset({GPU, OTHER})}, "the driver lists processes of it on"),
    ],
)
def test_a_source_that_differs_fails_the_check(changes, words):
    with pytest.raises(Broken, match=words):
        seen(pod_devices(**changes)).result()


def test_a_pod_that_starts_or_ends_between_two_answers_is_compared_again():
    begins, ends = (
        pod_devices(environment=frozenset(), spec=None, tickets=0),
        pod_devices(spec=None),
    )
    assert seen(begins, AGREED).result()["figures"]["pods"] == 1
    assert seen(ends, AGREED).result()["figures"]["pods"] == 1


def test_a_demo_without_any_compared_pod_fails_the_check():
    with pytest.raises(Broken, match="0 of 0 pods"):
        seen(pod_devices(environment=frozenset())).result()


def test_a_failed_comparison_is_repeated(monkeypatch):
    monkeypatch.setattr(gpu_agreement, "EVERY_SECONDS", 0.01)
    answers, done = iter([RuntimeError("no API"), {"uid": ("p", AGREED)}]), threading.Event()

    def look():
        answer = next(answers, None)
        if answer is None:
            done.set()
            return {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    agreement = Agreement(look)
    agreement.start()
    assert done.wait(30)
    assert agreement.result()["figures"]["pods"] == 1


def test_specs_are_read_by_the_pod_that_they_were_written_for(tmp_path):
    edits = {"env": ["X=1", f"GPUPACK_DEVICES={OTHER},{GPU}"]}
    spec = {
        "annotations": {"gpupack.dev/record": json.dumps({"uid": "uid"})},
        "devices": [{"name": "n", "containerEdits": edits}],
    }
    (tmp_path / "gpupack.dev-alloc-n.json").write_text(json.dumps(spec))
    assert gpu_agreement._specs(tmp_path) == {"uid": (GPU, OTHER)}
