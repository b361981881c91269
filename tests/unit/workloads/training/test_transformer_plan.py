# SPDX-License-Identifier: Apache-2.0
"""Splits of a batch, cost of a token, and places of checkpoints, without torch."""

import pytest

from gpupack_workloads.errors import BadArgument, Interrupted, WorkloadError
from gpupack_workloads.training.peaks import bf16_peak_tflops
from gpupack_workloads.transformer.checkpoint.folder import (
    ABOUT,
    Checkpoint,
    claim,
    forget_old,
    latest,
    point_at,
    refuse_if_replaced,
)
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.plan import Shape, flops_per_token, plan_for
from gpupack_workloads.transformer.stopping import leaving, missing


def parts(ranks, **options):
    return plan_for(TransformerOptions(**options), ranks=ranks, simulated=False).parts


@pytest.mark.parametrize(
    ("ranks", "parallel", "expected"),
    [(1, "ddp", 4), (2, "fsdp", 2), (4, "ddp", 1), (4, "tp", 4), (2, "pp", 4), (4, "pp", 8)],
)
def test_micro_batches_fit_memory_and_fill_a_pipeline(ranks, parallel, expected):
    assert parts(ranks, parallel=parallel) == expected


def test_requested_accumulation_is_used_unchanged():
    assert parts(2, accumulate=12) == 12


def test_a_tokens_operations_are_six_per_weight_and_the_half_of_attention():
    shape = Shape(layers=1, width=128, heads=2, kv_heads=1, inner=256, vocabulary=1000, sequence=64)
    weights = 128 * (128 + 64 + 64 + 128) + 3 * 128 * 256 + 128 * 1000
    assert flops_per_token(shape) == 6 * weights + 6 * 128 * 64


def test_a_peak_is_known_by_the_devices_name_or_not_at_all():
    assert bf16_peak_tflops("NVIDIA H200") == 989.5
    assert bf16_peak_tflops("NVIDIA GeForce GTX 1080") is None


def write(folder, checkpoint):
    (folder / checkpoint.name).mkdir(parents=True)
    (folder / checkpoint.name / ABOUT).touch()
    return checkpoint


def written(folder, *checkpoints):
    for checkpoint in checkpoints:
        point_at(folder, write(folder, checkpoint))


def at(attempt, step):
    return Checkpoint(attempt=attempt, step=step)


def test_the_pointer_names_the_newest_checkpoint(tmp_path):
    assert latest(tmp_path) is None
    written(tmp_path, at(1, 10), at(2, 12))
    assert latest(tmp_path) == at(2, 12)
    assert (tmp_path / "latest").read_text() == "attempt-2/step-12\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-1", "attempt-2", "latest"]


def test_an_incomplete_checkpoint_does_not_count(tmp_path):
    written(tmp_path, at(1, 10))
    (tmp_path / "attempt-1/step-20").mkdir()
    assert latest(tmp_path) == at(1, 10)
    (tmp_path / "latest").unlink()
    assert latest(tmp_path) == at(1, 10)


@pytest.mark.parametrize("text", ["attempt-1/step-99", "../elsewhere", ""])
def test_with_a_broken_pointer_the_newest_complete_checkpoint_is_used(tmp_path, text):
    for checkpoint in (at(1, 30), at(2, 20), at(2, 10)):
        write(tmp_path, checkpoint)
    (tmp_path / "latest").write_text(text)
    assert latest(tmp_path) == at(2, 20)


def test_a_broken_pointer_without_any_complete_checkpoint_is_refused(tmp_path):
    (tmp_path / "latest").write_text("attempt-1/step-99")
    with pytest.raises(BadArgument, match="which is no checkpoint there"):
        latest(tmp_path)


def test_an_attempt_taken_for_dead_cannot_move_the_pointer_back(tmp_path):
    written(tmp_path, at(2, 20))
    zombie = write(tmp_path, at(1, 20))
    with pytest.raises(WorkloadError, match="attempt 2 has taken over"):
        point_at(tmp_path, zombie)
    assert latest(tmp_path) == at(2, 20)


def test_a_start_claims_a_number_above_all_others_and_no_smaller_than_its_own(tmp_path):
    assert [claim(tmp_path, least) for least in (1, 1, 5, 2)] == [1, 2, 5, 6]
    (tmp_path / "latest").write_text("attempt-9/step-1")
    assert claim(tmp_path, 1) == 10


def test_a_start_takes_over_before_its_first_checkpoint(tmp_path):
    first = claim(tmp_path, 1)
    refuse_if_replaced(tmp_path, first)
    claim(tmp_path, 1)
    with pytest.raises(WorkloadError, match="attempt 2 has taken over"):
        refuse_if_replaced(tmp_path, first)


def test_the_newest_checkpoint_and_the_one_before_it_are_kept(tmp_path):
    written(tmp_path, at(1, 1), at(1, 2), at(1, 3))
    forget_old(tmp_path, at(1, 3))
    assert sorted(path.name for path in (tmp_path / "attempt-1").iterdir()) == ["step-2", "step-3"]


def test_an_earlier_attempt_does_not_remove_checkpoints_of_a_later_one(tmp_path):
    for checkpoint in (at(2, 1), at(1, 1), at(1, 2), at(1, 3)):
        write(tmp_path, checkpoint)
    forget_old(tmp_path, at(1, 3))
    assert (tmp_path / at(2, 1).name).is_dir()


def test_the_checkpoint_of_the_pointer_is_never_removed(tmp_path):
    written(tmp_path, at(1, 10))
    for checkpoint in (at(1, 20), at(2, 20), at(2, 30)):
        write(tmp_path, checkpoint)
    forget_old(tmp_path, at(2, 30))
    assert latest(tmp_path) == at(1, 10)
    assert not (tmp_path / at(1, 20).name).exists()


def test_processes_that_have_not_reported_a_save_are_missing(tmp_path):
    with leaving(tmp_path, 0):
        pass
    with pytest.raises(Interrupted), leaving(tmp_path, 1):
        raise Interrupted("stopped")
    with pytest.raises(KeyboardInterrupt), leaving(tmp_path, 2):
        raise KeyboardInterrupt
    assert missing(tmp_path) == ["2"]
