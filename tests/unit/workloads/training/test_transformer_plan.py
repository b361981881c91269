# SPDX-License-Identifier: Apache-2.0
"""How a batch is cut, what a token costs, and where checkpoints lie: none of it needs torch."""

import pytest

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.training.peaks import bf16_peak_tflops
from gpupack_workloads.transformer.flops import flops_per_token
from gpupack_workloads.transformer.folder import Checkpoint, forget_old, latest, point_at
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.plan import Shape, plan_for


def parts(ranks, **options):
    return plan_for(TransformerOptions(**options), ranks=ranks, simulated=False).parts


@pytest.mark.parametrize(
    ("ranks", "parallel", "expected"),
    [(1, "ddp", 4), (2, "fsdp", 2), (4, "ddp", 1), (4, "tp", 4), (2, "pp", 4), (4, "pp", 8)],
)
def test_micro_batches_fit_memory_and_fill_a_pipeline(ranks, parallel, expected):
    assert parts(ranks, parallel=parallel) == expected


def test_accumulation_is_taken_at_its_word():
    assert parts(2, accumulate=12) == 12


def test_a_tokens_operations_are_six_per_weight_and_the_half_of_attention():
    shape = Shape(layers=1, width=128, heads=2, kv_heads=1, inner=256, vocabulary=1000, sequence=64)
    weights = 128 * (128 + 64 + 64 + 128) + 3 * 128 * 256 + 128 * 1000
    assert flops_per_token(shape) == 6 * weights + 6 * 128 * 64


def test_a_peak_is_known_by_the_devices_name_or_not_at_all():
    assert bf16_peak_tflops("NVIDIA H200") == 989.5
    assert bf16_peak_tflops("NVIDIA GeForce GTX 1080") is None


def written(folder, *checkpoints):
    for checkpoint in checkpoints:
        (folder / checkpoint.name).mkdir(parents=True)
        point_at(folder, checkpoint)


def test_the_pointer_names_the_newest_checkpoint(tmp_path):
    assert latest(tmp_path) is None
    written(tmp_path, Checkpoint(step=10, attempt=1), Checkpoint(step=12, attempt=2))
    assert latest(tmp_path) == Checkpoint(step=12, attempt=2)
    assert (tmp_path / "latest").read_text() == "attempt-2/step-12\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-1", "attempt-2", "latest"]


def test_a_checkpoint_without_a_pointer_does_not_count(tmp_path):
    written(tmp_path, Checkpoint(step=10, attempt=1))
    (tmp_path / "attempt-1/step-20").mkdir()
    assert latest(tmp_path) == Checkpoint(step=10, attempt=1)


@pytest.mark.parametrize("text", ["attempt-1/step-99", "../elsewhere", ""])
def test_a_pointer_that_leads_nowhere_is_refused(tmp_path, text):
    (tmp_path / "latest").write_text(text)
    with pytest.raises(BadArgument, match="which is no checkpoint there"):
        latest(tmp_path)


def test_the_newest_checkpoint_and_the_one_before_it_are_kept(tmp_path):
    one, two, three = (Checkpoint(step=step, attempt=1) for step in (1, 2, 3))
    written(tmp_path, one, two, three)
    forget_old(tmp_path, three)
    assert sorted(path.name for path in (tmp_path / "attempt-1").iterdir()) == ["step-2", "step-3"]


def test_what_a_later_attempt_wrote_is_not_removed_by_an_earlier_one(tmp_path):
    mine = [Checkpoint(step=step, attempt=1) for step in (1, 2, 3)]
    theirs = Checkpoint(step=1, attempt=2)
    written(tmp_path, theirs, *mine)
    forget_old(tmp_path, mine[-1])
    assert (tmp_path / theirs.name).is_dir()
