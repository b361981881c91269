# SPDX-License-Identifier: Apache-2.0
"""Arguments that the training workloads refuse before torch is imported."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.transformer.options import TransformerOptions, attempt_of
from gpupack_workloads.transformer.plan import plan_for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("resnet50 --batch-size 1", "1 is not in the range"),
        ("resnet50 --dtype fp8", "'fp8' is not one of"),
        ("resnet50 --bucket-mib 0", "0 is not in the range"),
        ("train-cnn --dataset imagenet", "'imagenet' is not one of"),
        ("train-cnn --dataset mnist --data /nowhere", "does not exist"),
        ("train-cnn --dataset mnist", "--dataset mnist needs --data, the folder that holds it"),
        ("train-cnn --data /", "--data: synthetic images have no files"),
        ("train-cnn --dataset mnist --data / --shape mnist", "--shape is for synthetic images"),
        ("train-cnn --epochs 2 --steps 10", "--steps: a training by epochs has no techniques"),
        ("train-cnn --optimizer sgd --learning-rate 1", "--optimizer, --learning-rate: only a"),
        ("train-cnn --epochs 2 --optimizer lion", "'lion' is not one of"),
        ("train-cnn --epochs 2 --learning-rate 0", "0.0 is not in the range"),
        ("train-cnn --epochs 0", "0 is not in the range"),
        ("train-cnn --batch-size 10 --accumulate 4", "--accumulate 4 does not divide"),
        ("transformer --parallel magic", "'magic' is not one of"),
        ("transformer --layers 0", "0 is not in the range"),
        ("transformer --checkpoint-every 0", "0 is not in the range"),
        ("transformer --checkpoint=", "the folder's name is empty"),
    ],
)
def test_bad_arguments_end_with_status_2(arguments, message):
    outcome = CliRunner().invoke(main, arguments.split())
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output


def test_arguments_are_judged_without_torch():
    code = (
        "import sys; from gpupack_workloads import commands;"
        "[commands.load(name) for name in ('resnet50', 'train-cnn', 'transformer')];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "ranks", "message"),
    [
        ({"width": 96}, 1, "not 64 or 128 numbers each"),
        ({"kv_heads": 3, "heads": 2}, 1, "3 key heads do not divide 2 heads"),
        ({"sequence": 40}, 1, "no multiple of 16"),
        ({"parallel": "tp"}, 3, "3 ranks cannot share 2 key heads"),
        ({"parallel": "pp"}, 4, "2 layers are too few for a pipeline of 4"),
        ({"batch_size": 8}, 3, "8 rows cannot be shared evenly by 3 ranks"),
        ({"dtype": "bf16"}, 1, "without a GPU"),
    ],
)
def test_a_network_that_the_ranks_cannot_share_is_refused(wrong, ranks, message):
    with pytest.raises(BadArgument, match=message):
        plan_for(TransformerOptions(**wrong), ranks=ranks, simulated=True)


def test_an_attempt_is_a_number():
    assert (attempt_of({}), attempt_of({"GPUPACK_ATTEMPT": "3"})) == (1, 3)
    with pytest.raises(BadArgument, match="GPUPACK_ATTEMPT is 'x'"):
        attempt_of({"GPUPACK_ATTEMPT": "x"})
