# SPDX-License-Identifier: Apache-2.0
"""The transformer workload from the inside: kernels, ways to spread it, checkpoints, signals."""

import contextlib
import json
import math
import os
import pickle
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_workloads.distributed.rank import group
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import (
    BadArgument,
    Interrupted,
    OutOfMemory,
    WorkloadError,
    WrongResult,
)
from gpupack_workloads.transformer import sdpa, session, speed, training
from gpupack_workloads.transformer.checkpoint import checks
from gpupack_workloads.transformer.checkpoint.folder import claim, latest, written
from gpupack_workloads.transformer.language import Language
from gpupack_workloads.transformer.memory_estimate import (
    activation_bytes,
    parameters,
    training_bytes,
)
from gpupack_workloads.transformer.memory_estimate import alone as alone_held
from gpupack_workloads.transformer.model import new_decoder, use
from gpupack_workloads.transformer.operations import operations
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.parallel import WorldRank, single_learner
from gpupack_workloads.transformer.parallel.learner import Sharing
from gpupack_workloads.transformer.plan import plan_for
from gpupack_workloads.transformer.session import ended, measure
from gpupack_workloads.transformer.verification import Curve, compare, curve

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
on_cpus = pytest.mark.skipif(torch.cuda.is_available(), reason="the gangs here are of CPUs")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SMALL = TransformerOptions(kernels="torch", steps=4, check_steps=0)
TOLERANCE = 1e-5


def losses(result):
    assert not isinstance(result, Exception), result
    return {row["step"]: row["loss"] for row in result.rows}


def language(seed=0):
    return Language(vocabulary=256, seed=seed, device=torch.device("cpu"))


def test_a_steps_tokens_depend_on_seed_and_step_alone():
    first, again = (language().batch(3, rows=4, length=32) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, language().batch(4, rows=4, length=32).inputs)
    assert not torch.equal(first.inputs, language(1).batch(3, rows=4, length=32).inputs)


def test_targets_are_the_next_tokens_and_shares_make_up_the_batch():
    batch = language().batch(0, rows=6, length=32)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    shares = [batch.share(index, 3).inputs for index in range(3)]
    assert torch.equal(torch.cat(shares), batch.inputs)


def decoder(kernels, **changes):
    plan = plan_for(
        TransformerOptions(layers=1, kernels=kernels, **changes), ranks=1, simulated=True
    )
    made = operations(kernels, compiled=False)
    return new_decoder(
        plan.shape, made, dtype=torch.float32, recompute=plan.recompute, seed=1, device=DEVICE
    )


def loss_and_gradients(network):
    batch = language().batch(0, rows=2, length=16)
    loss = network(batch.inputs.to(DEVICE), batch.targets.to(DEVICE))
    loss.backward()
    return loss, {name: p.grad for name, p in network.named_parameters()}


@pytest.mark.parametrize("kernels", ["ours", "all"])
def test_our_loss_is_that_of_cross_entropy(kernels):
    network, batch = decoder(kernels), language().batch(0, rows=2, length=16)
    inputs, targets = batch.inputs.to(DEVICE), batch.targets.to(DEVICE)
    expected = torch.nn.functional.cross_entropy(network(inputs).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(network(inputs, targets), expected)


@pytest.mark.parametrize(
    "other",
    [
        {"kernels": "ours"},
        {"kernels": "all"},
        {"kernels": "torch", "recompute": True},
        {"kernels": "all", "recompute": True},
    ],
    ids=lambda other: " ".join(map(str, other.values())),
)
def test_our_kernels_and_recomputing_leave_loss_and_gradients_the_same(other):
    loss, gradients = loss_and_gradients(decoder("torch"))
    other_loss, other_gradients = loss_and_gradients(decoder(**other))
    torch.testing.assert_close(other_loss, loss, rtol=1e-5, atol=0)
    for name, gradient in gradients.items():
        found = other_gradients[name]
        assert (found - gradient).norm() <= 1e-4 * gradient.norm(), name


def test_torchs_attention_is_the_first_that_takes_the_heads_and_has_a_name():
    heads = {"heads": 2, "kv_heads": 1, "width": 64, "dtype": torch.float32, "device": DEVICE}
    backend = sdpa.backend_for(**heads)
    # cuDNN and FlashAttention have no 32-bit kernels on a GPU, and cuDNN none on a CPU.
    assert backend is not sdpa.ORDER[0]
    assert sdpa.name_of(backend) in {"flash", "efficient", "math"}
    q, k, v = (torch.randn(1, count, 16, 64, device=DEVICE) for count in (2, 1, 1))
    scores = (q @ k.mT / 8).masked_fill(torch.ones(16, 16, device=DEVICE).triu(1).bool(), -1e9)
    torch.testing.assert_close(sdpa.attention(q, k, v), scores.softmax(-1) @ v)


@on_cpus
def test_both_kinds_of_kernels_are_timed_in_turns(alone, monkeypatch):
    timed = []

    def turns(works, **_):
        timed.extend(works)
        for work in works.values():
            work()
        return {"ours": 2.0, "torch": 1.0}

    monkeypatch.setattr(speed, "seconds_in_turns", turns)
    small = TransformerOptions(layers=1, width=64, heads=1, kv_heads=1, batch_size=1, steps=1)
    metrics = measure(replace(small, check_steps=0), "auto").metrics
    assert (timed, metrics["kernels_ratio"]) == (["ours", "torch"], 0.5)
    assert metrics["torch_attention"] in {"cudnn", "flash", "math"}


@pytest.mark.parametrize("kernels", ["torch", "ours", "all"])
def test_the_estimate_counts_what_is_kept_and_no_more(kernels, kept_bytes):
    plan = plan_for(
        TransformerOptions(layers=2, kernels=kernels, batch_size=2, sequence=32, accumulate=1),
        ranks=1,
        simulated=True,
    )
    network = new_decoder(
        plan.shape,
        operations(kernels, compiled=False),
        dtype=torch.float32,
        recompute=False,
        seed=1,
        device=DEVICE,
    )
    assert parameters(plan.shape) == sum(p.numel() for p in network.parameters())
    held = replace(alone_held(plan, parts=1, moments=False), fused=kernels == "all")
    # In 32 bits one of the two arrays of logits is not kept, but needed to make the other; of a
    # loss that comes straight from the head, logits are needed in chunks.
    logits = 4 * held.tokens * plan.shape.vocabulary
    estimated = activation_bytes(held, plan) - logits
    batch = language().batch(0, rows=2, length=32)
    inputs, targets = batch.inputs.to(DEVICE), batch.targets.to(DEVICE)
    kept = kept_bytes(lambda: network(inputs, targets), network.parameters())
    assert 0.7 * kept < estimated <= kept


@on_cpus
def test_what_does_not_fit_is_refused_by_every_rank_before_any_work(gang, monkeypatch):
    monkeypatch.setattr(session, "work", None)
    huge = replace(SMALL, batch_size=65536, sequence=131072, accumulate=1)
    for answer in gang(2, measure, huge, "auto"):
        assert isinstance(answer, OutOfMemory)
        assert "set a smaller --batch-size, --sequence" in str(answer)


@on_cpus
def test_a_comparison_that_does_not_fit_says_how_to_do_without(alone, monkeypatch):
    monkeypatch.setattr(session, "checking_bytes", lambda *_: 2**60)
    with pytest.raises(OutOfMemory, match="--check-steps 0 would not compare"):
        measure(replace(SMALL, check_steps=3), "auto")


@on_cpus
@pytest.mark.parametrize("kernels", ["ours", "all"])
def test_a_small_run_with_our_kernels_is_verified(alone, kernels):
    options = TransformerOptions(layers=1, width=64, heads=1, kv_heads=1, batch_size=1, steps=1)
    result = measure(replace(options, kernels=kernels), "auto")
    assert result.verified
    assert result.metrics["error"] <= result.metrics["error_bound"]
    assert result.metrics["kernels"] == kernels


@on_cpus
@pytest.mark.parametrize(
    "spread",
    [
        {"parallel": "ddp"},
        {"parallel": "fsdp", "accumulate": 3, "recompute": True},
        {"parallel": "tp", "recompute": True},
        {"parallel": "pp"},
        {"parallel": "fsdp", "kernels": "all", "layers": 1, "batch_size": 2},
        {"parallel": "tp", "kernels": "all", "layers": 1, "batch_size": 1},
    ],
    ids=lambda spread: f"{spread['parallel']} {spread.get('kernels', 'torch')}",
)
def test_two_ranks_lose_what_a_single_process_loses(gang, spread):
    options = replace(SMALL, steps=1, check_steps=3, **spread)
    for result in gang(2, measure, options, "auto"):
        assert not isinstance(result, Exception), result
        assert result.verified
        assert result.metrics["error"] < TOLERANCE
        assert result.metrics["gradient_error"] < TOLERANCE
        assert result.metrics["weight_error"] < TOLERANCE


def killed_after_checkpoint(options):
    """Train until there is a checkpoint, then exit at once."""

    def save(*arguments):
        kept(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    kept, training.save = training.save, save
    measure(options, "auto")


@on_cpus
@pytest.mark.parametrize(("ranks", "parallel"), [(1, "ddp"), (3, "fsdp"), (2, "pp")])
def test_training_goes_on_after_a_kill_by_other_ranks(gang, alone, tmp_path, ranks, parallel):
    whole = losses(measure(SMALL, "auto"))
    kept = replace(SMALL, checkpoint=tmp_path, checkpoint_every=2)
    answers = gang(2, killed_after_checkpoint, kept)
    assert all(isinstance(answer, ChildProcessError) for answer in answers)
    resumed = gang(ranks, measure, replace(kept, attempt=2, parallel=parallel), "auto")[0]
    assert losses(resumed) == pytest.approx({2: whole[2], 3: whole[3]}, rel=TOLERANCE)
    assert latest(tmp_path).name == "attempt-2/step-4"


@on_cpus
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_new_job_goes_on_in_the_folder_of_one_that_took_more_attempts(alone, tmp_path, attempt):
    kept = replace(SMALL, checkpoint=tmp_path, checkpoint_every=2)
    measure(replace(kept, steps=2, attempt=3), "auto")
    resumed = measure(replace(kept, attempt=attempt), "auto")
    assert list(losses(resumed)) == [2, 3]
    assert latest(tmp_path).name == "attempt-4/step-4"


@on_cpus
def test_who_was_replaced_while_it_ran_saves_nothing(alone, tmp_path, monkeypatch):
    def train(learner, keeping):
        assert claim(tmp_path, 1) > keeping.attempt
        return training.train(learner, keeping)

    monkeypatch.setattr(session, "train", train)
    with pytest.raises(WorkloadError, match=r"attempt 2 has taken over .* from attempt 1"):
        measure(replace(SMALL, checkpoint=tmp_path), "auto")
    assert (latest(tmp_path), written(tmp_path)) == (None, [])


def with_a_folder_of_its_own(options):
    own = options.checkpoint / os.environ["RANK"]
    return measure(replace(options, checkpoint=own), "auto")


@on_cpus
def test_a_folder_that_workers_do_not_share_is_refused_before_any_step(gang, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(session, "work", None)
    answers = gang(2, with_a_folder_of_its_own, replace(SMALL, checkpoint=tmp_path))
    assert [type(answer) for answer in answers] == [BadArgument, BadArgument]
    assert "is not the folder of that name on worker 0" in str(answers[1])
    assert [list((tmp_path / name).iterdir()) for name in "01"] == [[], []]


def termination_error(options):
    if os.environ["RANK"] == "1":
        take = training.Training.take

        def take_and_signal(self, step):
            os.kill(os.getpid(), signal.SIGTERM)
            take(self, step)

        training.Training.take = take_and_signal
    return measure(options, "auto")


@on_cpus
def test_the_losses_of_all_starts_are_next_to_the_checkpoints(alone, tmp_path):
    kept = replace(SMALL, steps=3, checkpoint=tmp_path, checkpoint_every=2)
    begun = measure(kept, "auto")
    measure(replace(kept, steps=5), "auto")
    files = [tmp_path / f"attempt-{number}" / "losses.jsonl" for number in (1, 2)]
    found = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    assert [[(each["step"], each["ranks"]) for each in of] for of in found] == [
        [(0, 1), (1, 1), (2, 1)],
        [(3, 1), (4, 1)],
    ]
    assert [each["loss"] for each in found[0]] == [row["loss"] for row in begun.rows]


def test_a_signal_to_one_rank_ends_all_of_them_with_a_checkpoint(gang, tmp_path):
    options = replace(SMALL, steps=50, checkpoint=tmp_path, checkpoint_every=50)
    answers = gang(2, termination_error, options)
    assert [type(answer) for answer in answers] == [Interrupted, Interrupted]
    assert latest(tmp_path).step == 2


@on_cpus
def test_a_checkpoint_of_another_network_is_refused(alone, tmp_path):
    measure(replace(SMALL, steps=1, checkpoint=tmp_path), "auto")
    with pytest.raises(BadArgument, match="of another network: layers 2 and not 1"):
        measure(replace(SMALL, layers=1, checkpoint=tmp_path), "auto")


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwrite(path):
    path.write_bytes(bytes(path.stat().st_size))


def forget_the_network(path):
    path.write_text('{"network": null, "checked": null}')


def compared_without_end(path):
    about = json.loads(path.read_text())
    figures = dict.fromkeys(("error", "gradient_error", "weight_error"), 0.0)
    path.write_text(json.dumps(about | {"checked": figures | {"steps": math.inf}}))


def hold_a_program(path):
    class Program:
        def __reduce__(self):
            return Path.touch, (path.parent / "it ran",)

    path.write_bytes(pickle.dumps(Program()))


def ask_for_much_memory(path):
    """The unpickler in C allocates memory for an object with this number: 17 GB."""
    body = path.read_bytes()
    assert body[-1:] == pickle.STOP
    path.write_bytes(body[:-1] + pickle.LONG_BINPUT + (2**31).to_bytes(4, "little") + pickle.STOP)


@on_cpus
@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (hold_a_program, ".metadata"),
        (ask_for_much_memory, ".metadata"),
        (compared_without_end, "network.json"),
        (cut_in_half, "__0_0.distcp"),
        (Path.unlink, "__0_0.distcp"),
        (overwrite, "__0_0.distcp"),
        (cut_in_half, ".metadata"),
        (Path.unlink, ".metadata"),
        (forget_the_network, "network.json"),
    ],
)
def test_a_damaged_checkpoint_is_refused_until_it_is_removed(alone, tmp_path, spoil, name):
    kept = replace(SMALL, checkpoint=tmp_path, checkpoint_every=2)
    measure(kept, "auto")
    place = tmp_path / latest(tmp_path).name
    spoil(place / name)
    longer = replace(kept, steps=5)
    with pytest.raises(BadArgument, match=f"{place} is damaged: .* Remove that folder"):
        measure(longer, "auto")
    assert not (place / "it ran").exists()
    shutil.rmtree(place)
    assert list(losses(measure(longer, "auto"))) == [2, 3, 4]


@on_cpus
@pytest.mark.parametrize("digits", [10, 300, 5000])
def test_a_pointer_to_a_number_that_no_training_reaches_leads_nowhere(alone, tmp_path, digits):
    kept = replace(SMALL, checkpoint=tmp_path, checkpoint_every=2)
    measure(kept, "auto")
    (tmp_path / "latest").write_text(f"attempt-{'9' * digits}/step-4")
    assert list(losses(measure(replace(kept, steps=5), "auto"))) == [4]


@on_cpus
def test_bounds_are_ours_whatever_a_checkpoint_says_of_them(alone, tmp_path):
    kept = replace(SMALL, check_steps=3, kernels="ours", checkpoint=tmp_path, checkpoint_every=2)
    assert measure(kept, "auto").verified
    path = tmp_path / latest(tmp_path).name / "network.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"checked": about["checked"] | {"error": 5, "bound": 1e9}}))
    result = measure(replace(kept, steps=5), "auto")
    assert (result.verified, result.metrics["error"]) == (False, 5)
    assert result.metrics["error_bound"] < 1


def wrong_ours(kernels, *, compiled):
    made = operations("torch", compiled=compiled)
    if kernels == "torch":
        return made
    return replace(made, product=lambda x, weight: 1.5 * made.product(x, weight))


@on_cpus
def test_what_goes_on_is_compared_afresh_only_if_it_computes_in_another_way(
    alone, monkeypatch, tmp_path
):
    kept = replace(SMALL, check_steps=3, checkpoint=tmp_path, checkpoint_every=2)
    measure(replace(kept, steps=2), "auto")
    monkeypatch.setattr(session, "operations", wrong_ours)
    with pytest.raises(WrongResult, match="single process"):
        measure(replace(kept, attempt=2, kernels="ours"), "auto")
    monkeypatch.setattr(session, "check", None)
    assert measure(replace(kept, attempt=3), "auto").metrics["check_steps"] == 3


@on_cpus
def test_a_checkpoint_of_a_training_that_compared_nothing_verifies_nothing(alone, tmp_path):
    kept = replace(SMALL, checkpoint=tmp_path, checkpoint_every=2)
    measure(replace(kept, steps=2), "auto")
    assert "check_steps" not in measure(replace(kept, attempt=2), "auto").metrics
    afresh = measure(replace(kept, attempt=3, check_steps=3), "auto")
    assert afresh.metrics["check_steps"] == 3


@on_cpus
def test_torch_compared_with_itself_is_not_verified(alone):
    result = measure(replace(SMALL, steps=1, check_steps=3), "auto")
    assert (result.metrics["error"], result.verified) == (0, False)


@on_cpus
@pytest.mark.parametrize(
    ("factor", "message"), [(float("nan"), "are no numbers"), (1.01, "the training's first losses")]
)
def test_a_training_whose_own_losses_are_wrong_is_refused_and_not_kept(
    alone, monkeypatch, tmp_path, factor, message
):
    def train(learner, keeping):
        step = learner.step
        learner.step = lambda batch: factor * step(batch)
        return training.train(learner, keeping)

    monkeypatch.setattr(session, "train", train)
    with pytest.raises(WrongResult, match=message):
        measure(replace(SMALL, check_steps=3, checkpoint=tmp_path), "auto")
    assert latest(tmp_path) is None


@on_cpus
def test_a_folder_that_cannot_be_written_is_refused_before_any_step(alone, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadArgument, match="cannot keep checkpoints in"):
        measure(replace(SMALL, checkpoint=tmp_path / "file" / "below"), "auto")


def test_a_curve_that_parts_from_the_reference_is_refused():
    plan = plan_for(TransformerOptions(), ranks=1, simulated=True)
    lengths = {"head": 2.0, "key": 0.01}
    reference = Curve([5.0, 4.0, 3.0], lengths, lengths)
    near = compare(replace(reference, losses=[5.0, 4.0001, 3.0]), reference, plan)
    assert (near.error, near.verifies) == (pytest.approx(0.00002), True)
    assert not replace(near, error=99.0).verifies
    assert not replace(near, weight_error=float("nan")).verifies
    for wrong in (
        {"losses": [5.0, 4.01, 3.0]},
        {"losses": [5.0, float("nan"), 3.0]},
        {"gradients": {"head": 4.0, "key": 0.02}},
        {"gradients": {"head": 2.0}},
        {"gradients": {"head": 2.0, "key": float("nan")}},
        {"weights": {"head": 2.0, "key": 0.01001}},
    ):
        with pytest.raises(WrongResult, match="single process"):
            compare(replace(reference, **wrong), reference, plan)


def test_two_steps_do_not_verify_a_training():
    plan = plan_for(TransformerOptions(), ranks=1, simulated=True)
    few = Curve([5.0, 4.0], {"head": 2.0}, {"head": 2.0})
    assert not compare(few, few, plan).verifies


def without_gradients_of_keys(learner):
    whole = learner.module.operations
    use(
        learner.module,
        replace(whole, attention=lambda q, k, v: whole.attention(q, k.detach(), v)),
    )


def without_updates_of_a_layer(learner):
    (group,) = learner.optimizer.param_groups
    layer = {id(parameter) for parameter in learner.module.blocks["1"].parameters()}
    group["params"] = [p for p in group["params"] if id(p) not in layer]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_gradients_of_keys, r"most in blocks\.\d\.attention\.key"),
        (without_updates_of_a_layer, r"and blocks\.1\."),
    ],
)
def test_a_fault_that_losses_hardly_show_is_noticed(spoil, message):
    sizes = TransformerOptions(
        layers=2, width=128, heads=2, kv_heads=2, sequence=64, batch_size=2, compiled=False
    )
    plan = plan_for(sizes, ranks=1, simulated=DEVICE.type == "cpu")
    made, place = operations("torch", compiled=False), WorldRank(index=0, ranks=1, device=DEVICE)
    whole, spoilt = (single_learner(plan, made, place) for _ in range(2))
    spoil(spoilt)
    with pytest.raises(WrongResult, match=message):
        compare(curve(spoilt, 3), curve(whole, 3), plan)


class Sum(Sharing):
    """Adds gradients where it should average them."""

    def part(self, *, last):
        return contextlib.nullcontext()

    def backward(self, batch):
        loss = super().backward(batch)
        for parameter in self.module.parameters():
            torch.distributed.all_reduce(parameter.grad)
        return loss


def sum_for_mean(options):
    with group("auto", require_gpu=False) as mine:
        plan = plan_for(options, ranks=mine.ranks, simulated=True)
        place = WorldRank(index=mine.index, ranks=mine.ranks, device=mine.device.torch)
        made = operations("torch", compiled=False)
        reference = curve(single_learner(plan, made, place), 3)
        return compare(curve(Sum(plan, made, place), 3), reference, plan)


@on_cpus
def test_a_sum_of_gradients_in_place_of_their_mean_is_noticed(gang):
    for answer in gang(2, sum_for_mean, SMALL):
        assert isinstance(answer, WrongResult)


def fails_on_the_first(_):
    with group("auto", require_gpu=False) as mine, all_or_none():
        if mine.index == 0:
            raise BadArgument("mine")


@on_cpus
def test_an_error_of_one_rank_ends_all_with_its_status(gang):
    answers = gang(2, fails_on_the_first, None)
    assert [type(answer) for answer in answers] == [BadArgument, BadArgument]
    assert [str(answer)[:4] for answer in answers] == ["mine", "anot"]


@pytest.mark.parametrize(("unsaved", "kind"), [([], Interrupted), (["1"], WorkloadError)])
def test_a_signal_counts_as_an_orderly_end_only_if_all_have_saved(unsaved, kind):
    assert type(ended("stopped by SIGTERM", unsaved)) is kind


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("kernels", ["ours", "all"])
@pytest.mark.parametrize("recompute", [False, True])
def test_our_kernels_learn_what_torchs_do_on_a_gpu(alone, recompute, kernels):
    options = TransformerOptions(
        layers=2, width=512, heads=4, kv_heads=2, sequence=512, batch_size=8, steps=4,
        recompute=recompute, compiled=not recompute, kernels=kernels,
    )  # fmt: skip
    result = measure(options, "auto")
    assert result.verified
    plan = plan_for(options, ranks=1, simulated=False)
    assert training_bytes(plan, 1) <= result.metrics["peak_memory_mib"] * 2**20
    assert 0 < result.metrics["mfu"] < 1
    assert result.metrics["torch_attention"] in {"cudnn", "flash"}


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "tp", "pp"])
def test_two_gpus_learn_what_a_single_process_learns(command, parallel):
    outcome = command(
        "transformer", "--json", f"--parallel={parallel}", "--layers=2", "--width=512", "--heads=4",
        "--kv-heads=2", "--sequence=512", "--batch-size=8", "--steps=1", "--no-compile",
        processes=2,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["verified"]
    found = {name: result["metrics"][name] for name in ("parallel", "ranks", "backend")}
    assert found == {"parallel": parallel, "ranks": 2, "backend": "nccl"}
