# SPDX-License-Identifier: Apache-2.0
"""Table and picture of docs/workloads/cnn.md that compare optimisers and batch sizes."""

import importlib
import json
import pathlib

import pytest
from alike import assert_same_picture

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("train_cnn_figure")


def run(seed, test, *validation, optimizer="adam"):
    rows = [
        {"epoch": number, "validation_accuracy": accuracy, "seconds": 1.5 + number / 4}
        for number, accuracy in enumerate(validation, start=1)
    ]
    metrics = {"test_accuracy": test, "learning_rate": 0.001}
    return {
        "optimizer": optimizer, "batch_size": 64, "seed": seed,
        "learnt": True, "metrics": metrics, "rows": rows,
    }  # fmt: skip


FAILED = {
    "optimizer": "sgd",
    "batch_size": 64,
    "seed": 0,
    "learnt": False,
    "why": "the loss is nan",
}


def report(*runs):
    return {"target": 0.9, "runs": list(runs)}


def test_the_documents_say_and_show_what_the_report_says(figure, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    kept = json.loads(figure.REPORT.read_text())
    assert figure.table(kept) in figure.DOCUMENT.read_text()
    assert_same_picture(figure.drawn(kept), figure.PICTURE.read_text())


def test_a_row_has_means_over_the_seeds_with_smallest_and_largest(figure):
    table = figure.table(report(run(0, 0.95, 0.5, 0.91), run(1, 0.97, 0.9, 0.96)))
    assert "| `adam` | 64 | 0.001 | 1.75 | 1.5 (1 to 2) | 96.0 (95.0 to 97.0) | 2 |\n" in table


def test_trainings_that_miss_the_target_are_counted(figure):
    some = figure.table(report(run(0, 0.95, 0.5, 0.91), run(1, 0.8, 0.6, 0.7)))
    none = figure.table(report(run(0, 0.5, 0.4)))
    assert "| 2.0 (2 to 2), 1 of 2 |" in some
    assert "| never | 50.0 (50.0 to 50.0) |" in none


def test_trainings_that_diverged_or_learnt_nothing_are_counted(figure):
    table = figure.table(report(FAILED, FAILED | {"seed": 1}, run(0, 0.9, 0.9)))
    guessed = run(0, 0.1, 0.1, optimizer="sgd") | {"learnt": False}
    mixed = figure.table(report(guessed, run(1, 0.9, 0.9, optimizer="sgd")))
    assert "| `sgd` | 64 | - | - | - | - | 2, 0 learnt |\n" in table
    assert "| 50.0 (10.0 to 90.0) | 2, 1 learnt |\n" in mixed


def test_another_report_gives_another_picture(figure):
    old, new = (figure.drawn(report(run(0, 0.9, 0.5, last))) for last in (0.8, 0.9))
    with pytest.raises(AssertionError):
        assert_same_picture(new, old)


def test_a_combination_that_always_diverged_does_not_spoil_the_picture(figure):
    assert "adam" in figure.drawn(report(FAILED, run(0, 0.9, 0.9)))
