# SPDX-License-Identifier: Apache-2.0
"""Trains a small CNN with several optimisers and batch sizes, each with the same seeds.

    python3 benchmarks/train_cnn_compare.py      # scikit-learn's digits
    python3 benchmarks/train_cnn_compare.py --dataset cifar10 --data FOLDER --epochs 30 --target 0.7

Each combination of optimiser, batch size and seed is a training of its own, as `train-cnn --epochs`
makes it, in a process of its own on one GPU or the CPU. A seed gives the untrained network, the
order of the images and those that are held out. Learning rates are the workload's own: they are
scaled with the batch, and nothing is tuned to win.

Writes docs/reports/train-cnn-compare.json with every epoch of every training, and, if matplotlib is
installed, table and picture in docs/ (else `python benchmarks/train_cnn_figure.py` writes them).
Needs a Python with torch, torchvision, Triton, NumPy, click and msgspec; for digits scikit-learn.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import logging
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("workloads/kernels", "workloads")]

from gpupack_workloads.errors import WrongResult  # noqa: E402
from gpupack_workloads.results import Result, in_full  # noqa: E402
from gpupack_workloads.settings import prepare  # noqa: E402
from gpupack_workloads.train_cnn.options import OPTIMIZERS, SHAPES, CnnOptions  # noqa: E402

REPORT = ROOT / "docs" / "reports" / "train-cnn-compare.json"
DIGITS = "scikit-learn's digits"
PACKAGES = ("torch", "torchvision", "numpy")
IMPORTED = ("gpupack_workloads.train_cnn.epochs_session", "torchvision.datasets")
"""Import the libraries before any fork: imports take longer than a training on the CPU."""


def trained(options: CnnOptions) -> dict[str, Any]:
    """Return one training's result; one that learnt nothing has figures, a diverged one none."""
    measure = importlib.import_module(IMPORTED[0]).measure
    name = {"optimizer": options.optimizer, "batch_size": options.batch_size, "seed": options.seed}
    try:
        result = measure(options, "auto")
    except WrongResult as error:
        failed = {**name, "learnt": False, "why": str(error)}
        return failed | figures(error.result) if error.result else failed
    return {**name, "learnt": True} | figures(result)


def figures(result: Result) -> dict[str, Any]:
    """Return what a result has measured."""
    return {name: json.loads(in_full(result))[name] for name in ("metrics", "rows")}


def alone(options: CnnOptions, answers: Any) -> None:
    """Run a training as its only process, and send its result."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    answers.put(trained(options))


def in_its_own_process(options: CnnOptions) -> dict[str, Any]:
    """Return what a training in a fresh process gives.

    Raises:
        SystemExit: it ended without an answer; its log says why.
    """
    # Forked, so that torch is imported once; this process itself computes nothing with it, neither
    # on a GPU nor by threads of the CPU, which forked ones could not use then.
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=alone, args=(options, answers))
    process.start()
    while process.is_alive() and answers.empty():
        process.join(0.05)
    if answers.empty():
        sys.exit(f"{options} ended with status {process.exitcode}")
    answer: dict[str, Any] = answers.get()
    process.join()
    return answer


@contextmanager
def images(data: Path | None) -> Iterator[Path]:
    """Give the requested folder, or one with digits for as long as the context lasts."""
    if data is not None:
        yield data
        return
    digits = importlib.import_module("gpupack_workloads.train_cnn.digits")
    with tempfile.TemporaryDirectory() as folder:
        digits.write(Path(folder))
        yield Path(folder)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", choices=SHAPES, default="mnist")
    parser.add_argument("--data", type=Path, help=f"torchvision's root  [default: {DIGITS}]")
    parser.add_argument("--optimizers", default="sgd,momentum,adam,adamw")
    parser.add_argument("--batch-sizes", default="16,64,256")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--target", type=float, default=0.9, help="validation accuracy to reach")
    parser.add_argument("--out", type=Path, default=REPORT)
    chosen = parser.parse_args(arguments)
    chosen.optimizers = chosen.optimizers.split(",")
    chosen.batch_sizes = [int(number) for number in chosen.batch_sizes.split(",")]
    chosen.seeds = [int(number) for number in chosen.seeds.split(",")]
    if unknown := set(chosen.optimizers) - set(OPTIMIZERS):
        parser.error(f"no such optimizer: {', '.join(sorted(unknown))}; {', '.join(OPTIMIZERS)}")
    if chosen.dataset != "mnist" and chosen.data is None:
        parser.error(f"--dataset {chosen.dataset} needs --data, the folder that holds it")
    return chosen


def compare(chosen: argparse.Namespace, data: Path) -> list[dict[str, Any]]:
    """Return every combination's training."""
    runs = []
    # Seeds outermost: other load of the machine affects all combinations equally.
    for seed, optimizer, size in itertools.product(
        chosen.seeds, chosen.optimizers, chosen.batch_sizes
    ):
        start = time.monotonic()
        run = in_its_own_process(
            CnnOptions(
                dataset=chosen.dataset,
                data=data,
                # Digits have no published checksums, and users may have files of their own.
                checksums=chosen.data is not None,
                epochs=chosen.epochs,
                optimizer=optimizer,
                batch_size=size,
                seed=seed,
            )
        )
        runs.append(run)
        outcome = run["metrics"]["test_accuracy"] if run["learnt"] else run["why"]
        print(
            f"{optimizer}, {size}, seed {seed}: {outcome}, {time.monotonic() - start:.1f} s",
            flush=True,
        )
    return runs


def main(arguments: Sequence[str]) -> None:
    """Train all combinations and write the report."""
    chosen = parsed(arguments)
    prepare(os.environ)
    for module in IMPORTED:
        importlib.import_module(module)
    logging.basicConfig(level=logging.ERROR)
    start = time.monotonic()
    with images(chosen.data) as data:
        runs = compare(chosen, data)
    report = {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start, 1),
        "dataset": chosen.dataset,
        "images": DIGITS if chosen.data is None else chosen.dataset,
        "epochs": chosen.epochs,
        "target": chosen.target,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "runs": runs,
    }
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{chosen.out}: {len(runs)} trainings in {report['seconds']:.0f} s")
    if chosen.out == REPORT and importlib.util.find_spec("matplotlib"):
        importlib.import_module("train_cnn_figure").main()


if __name__ == "__main__":
    main(sys.argv[1:])
