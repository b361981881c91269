# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_workloads.results import in_full
from gpupack_workloads.tensorflow.outcome import Epoch, Found, summarise


def found(**changes):
    epoch = Epoch(loss=changes.pop("loss", 0.1), seconds=1.0, images=8)
    good = {"gradient_error": 0.0, "accuracy": 1.0, "different_weights": 0, "peak_mib": 100}
    return Found(epochs=[epoch], **good | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gradient_error": float("inf")}, "the replicas' gradient is inf"),
        ({"different_weights": 1}, "1 replicas have other weights"),
        ({"loss": float("nan")}, "the loss is nan after training"),
        ({"accuracy": 0.1}, "0.100 of the test images are right"),
        ({"peak_mib": 101}, "tensors had 101 MiB of a GPU, above the limit of 100 MiB"),
    ],
)
def test_each_fault_is_reported(changes, message):
    (fault,) = found(**changes).faults(limit_mib=100)
    assert message in fault


def test_without_faults_none_are_reported():
    assert found().faults(limit_mib=100) == []
    assert found(peak_mib=None).faults(limit_mib=0) == []


def test_a_loss_of_nan_gives_a_readable_result():
    about = {"replicas": 1}
    result = summarise(found(loss=float("nan")), about, simulated=True, verified=False)
    assert b"null" not in in_full(result)
    assert (result.verified, result.headline) == (False, "wrong result (simulated)")
    assert "loss" not in result.metrics


def test_images_per_second_leave_out_the_epoch_that_compiles():
    epochs = [Epoch(loss=1.0, seconds=100.0, images=10), Epoch(loss=0.1, seconds=2.0, images=10)]
    several = Found(
        gradient_error=0.0, epochs=epochs, accuracy=1.0, different_weights=0, peak_mib=7
    )
    result = summarise(several, {"replicas": 2}, simulated=False, verified=True)
    assert result.headline == "5 images/s, 2 replicas"
    assert (result.metrics["images_per_s"], result.metrics["peak_memory_mib"]) == (5.0, 7)
    assert [row["loss"] for row in result.rows] == [1.0, 0.1]
