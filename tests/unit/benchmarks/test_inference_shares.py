# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks/inference_shares.py` writes; shares are limited on a GPU host only."""

import argparse
import importlib
import json
import pathlib
import sys
from types import SimpleNamespace

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def shares(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("inference_shares")


def report(device, *percents):
    waits = {
        f"{name}_p{each}_ms": each * 100.0 / share
        for name, share in (("ttft", 1), ("itl", 10), ("latency", 0.5))
        for each in (50, 90, 99)
    }
    return {
        "results": [
            {
                "verified": True,
                "metrics": waits
                | {
                    "device": device,
                    "share_percent": percent,
                    "multiprocessors": 132 * percent // 100,
                    "output_tokens_per_s": 1024.4,
                },
            }
            for percent in percents
        ]
    }


def test_each_share_of_each_device_has_its_line(shares):
    lines = shares.table([report("NVIDIA H100", 10, 100), report("NVIDIA H200", 50)]).splitlines()
    assert len(lines) == 2 + 3
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| NVIDIA H100 | 10 % | 13 | 1,024 | 5,000.0 / 9,000.0 / 9,900.0 |")
    assert lines[4].startswith("| NVIDIA H200 | 50 % | 66 |")


def test_the_table_is_put_into_its_place_again_and_again(shares, tmp_path):
    document = tmp_path / "inference.md"
    begin, end = f"<!-- {shares.TABLE} -->\n", f"<!-- end of {shares.TABLE} -->"
    document.write_text(f"before\n{begin}old\n{end}\nafter\n")
    for device in ("h100", "h200"):
        path = tmp_path / f"inference-shares-{device}.json"
        path.write_text(json.dumps(report(device, 10)))
        shares.write_table(tmp_path, document)
    text = document.read_text()
    assert text.startswith(f"before\n{begin}| device |")
    assert text.endswith(f"{end}\nafter\n")
    assert ("old" in text, text.count("| h100 |"), text.count("| h200 |")) == (False, 1, 1)


def test_the_documents_table_is_up_to_date_with_the_reports(shares, tmp_path):
    text, document = shares.DOCUMENT.read_text(), tmp_path / "inference.md"
    document.write_text(text)
    shares.write_table(shares.REPORTS, document)
    assert document.read_text() == text


def test_a_share_has_the_variables_that_the_agent_sets(shares, tmp_path):
    found = shares.environment(30, 27, 16384, tmp_path)
    injected = importlib.import_module("gpupack_agent.mps.injection")
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "27"
    assert found["GPUPACK_DEVICE_PERCENT"] == "30"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=16384M"
    source = pathlib.Path(injected.__file__).read_text()
    assert all(name in source for name in found if name.startswith("CUDA_MPS"))


def test_a_share_has_the_threads_that_the_chart_says_are_sound(shares):
    assert shares.thread_percent(30, "NVIDIA H200") == 27
    assert shares.thread_percent(30, "a model that was not measured") == 30


def test_a_host_whose_shares_cannot_be_limited_gets_an_error(shares, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(shares, "PROGRAM_FOLDERS", ())
    with pytest.raises(SystemExit, match="cannot be limited"):
        shares.control_program()


def test_a_daemon_that_ends_at_once_is_reported_and_a_running_one_is_stopped(shares, tmp_path):
    """Replacements of the driver's programs that behave as the script expects."""
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\necho "no GPU"\nexit 1\n')
    living = tmp_path / "living"
    living.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -f ]; then echo > "$CUDA_MPS_PIPE_DIRECTORY/control"; exec sleep 60; fi\n'
        f"cat > {tmp_path}/input\n"
    )
    for program in (broken, living):
        program.chmod(0o755)
    with pytest.raises(SystemExit, match="no GPU"), shares.daemon(str(broken)):
        pass
    with shares.daemon(str(living)) as pipes:
        assert (pipes / "control").exists()
    assert (tmp_path / "input").read_text() == "quit\n"
    assert not pipes.exists()


def test_a_run_that_fails_or_takes_too_long_has_no_result(shares, monkeypatch, tmp_path):
    options = SimpleNamespace(rate=1.0, seconds=1.0, seed=0, memory_mib=1024)
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nexec sleep "$PAUSE"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("PAUSE", "x")
    assert shares.measure(options, 10, tmp_path, 5.0) is None
    monkeypatch.setenv("PAUSE", "20")
    assert shares.measure(options, 10, tmp_path, 0.2) is None


def test_percentages_are_read_in_order_and_each_once(shares):
    assert shares.percents_of("50,30,50") == [30, 50]


@pytest.mark.parametrize("text", ["x", "0", "101", "30,", "-5"])
def test_an_invalid_percentage_is_refused_before_a_daemon_starts(shares, text):
    with pytest.raises(argparse.ArgumentTypeError, match="no percentage from 1 to 100"):
        shares.percents_of(text)
