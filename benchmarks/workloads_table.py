# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/workloads from the reports in docs/reports/workloads.

    python benchmarks/workloads_table.py           # write them
    python benchmarks/workloads_table.py --check   # exit with 1 if they are not up to date

Each table is between two comments of its page. The text around the comments stays.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import documents
from workloads_bars import BARS, Bar, Pick
from workloads_index import INDEX, Entry
from workloads_runs import file_name

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "docs" / "reports" / "workloads"
DOCUMENTS = ROOT / "docs"
NAMED = {"torch": "torch", "triton": "Triton", "nvidia-nccl-cu13": "NCCL"}

CNN = "train-cnn"
TECHNIQUES = {
    "fp32": "fp32",
    "cudnn_benchmark": "+ cudnn.benchmark",
    "amp": "+ AMP, fp16 with scaling",
    "channels_last": "+ channels-last",
    "accumulation": "+ accumulation",
}
CUDA = "cuda-matmul"
TILES = "thunderkittens"
LANGUAGES = {"thunderkittens": "tile C++", "gluon": "Gluon", "triton": "Triton"}
LIBRARIES = {"cublas": "cuBLAS", "cudnn": "cuDNN"}
PEERS = "p2p-cpp"
PEER_WAYS = {
    "memcpy": "cudaMemcpyPeerAsync",
    "loads": "loads",
    "stores": "stores",
    "host": "through the host",
    "memcpy_both": "cudaMemcpyPeerAsync, both ways",
    "loads_both": "loads, both ways",
    "stores_both": "stores, both ways",
    "triton_loads": "Triton, loads",
    "triton_stores": "Triton, stores",
}

PACKED = "attention-varlen"
PACKED_RIVALS = {
    "sdpa": "sequence by sequence",
    "varlen": "torch's varlen",
    "flex": "flex_attention",
}

SYMMETRIC = "symmetric-memory"
ONE_SIDED_RUN = "symmetric-memory-one-sided"
GATHERINGS = {
    "nccl": "NCCL, then cuBLAS, us",
    "copies": "copies, us",
    "kernel": "one kernel, us",
    "torch": "torch, us",
    "alone": "no transfer, us",
}
ONE_SIDED = {
    "triton put": "put, stores",
    "triton get": "get, loads",
    "copy put": "put, copy engine",
    "copy get": "get, copy engine",
    "send-recv": "NCCL send and receive",
    "nvshmem put": "NVSHMEM put",
    "nvshmem get": "NVSHMEM get",
}

Report = dict[str, Any]


def read(folder: Path) -> list[Report]:
    """Return all reports, by name and number of GPUs.

    Raises:
        ValueError: a result was not verified.
    """
    reports = [_verified(path) for path in sorted(folder.glob("*.json"))]
    return sorted(reports, key=lambda report: (report["name"], report["gpus"]))


def _verified(path: Path) -> Report:
    report: Report = json.loads(path.read_text())
    if report["result"].get("verified") is not True:
        raise ValueError(f"{path}: its result was not verified; run it again, or remove the report")
    return report


def find(reports: Iterable[Report], bar: Bar) -> list[Report]:
    """Return the newest report of each kind of GPU for a target."""
    found = [each for each in reports if (each["name"], each["gpus"]) == (bar.run, bar.gpus)]
    by_age = sorted(found, key=lambda report: str(report["written"]))
    newest = {_device(report): report for report in by_age}
    return [newest[device] for device in sorted(newest)]


def bars_table(reports: list[Report]) -> str:
    """Return the targets and the measured figures."""
    head = ("bar", "target", "ratio", "figure", "met", "device", "versions", "date")
    found: list[tuple[Bar, Report | None]] = []
    for bar in BARS:
        found += [(bar, report) for report in find(reports, bar)] or [(bar, None)]
    return documents.table(head, [_bar_row(bar, report) for bar, report in found])


def runs_table(reports: list[Report]) -> str:
    """Return every run with its headline."""
    head = ("run", "result", "seconds", "report")
    rows = [
        (
            f"`{' '.join((report['workload'], *report['arguments']))}`",
            report["result"]["headline"],
            f"{report['seconds']:.0f}",
            f"[{_device(report)}]({file_name(report)})",
        )
        for report in reports
    ]
    return documents.table(head, rows)


def index_table(reports: list[Report]) -> str:
    """Return every workload with its page, its manifests and its newest headline."""
    head = ("workload", "workers", "what it does", "manifest", "newest report")
    return documents.table(head, [_index_row(entry, reports) for entry in INDEX])


def _index_row(entry: Entry, reports: list[Report]) -> tuple[str, ...]:
    manifests = (f"[{name}](../../examples/{name}.yaml)" for name in entry.examples)
    newest = _newest(reports, entry.name)
    return (
        f"[`{entry.name}`]({entry.page}#{entry.name})",
        entry.workers,
        entry.summary,
        ", ".join(manifests),
        "-" if newest is None else _headline(newest),
    )


def _headline(report: Report) -> str:
    link = f"../reports/workloads/{file_name(report)}"
    return f"{report['result']['headline']} ([{_device(report)}]({link}))"


def techniques_table(reports: list[Report]) -> str:
    """Return each technique's time and memory in train-cnn's newest report."""
    head = ("technique", "ms per step", "images/s", "memory, MiB")
    lines = _newest_rows(reports, CNN)
    return documents.table(
        head,
        [
            (
                TECHNIQUES[line["technique"]],
                f"{line['step_ms']:.2f}",
                f"{line['images_per_s']:,.0f}",
                f"{line['peak_memory_mib']:,}",
            )
            for line in lines
        ],
    )


def steps_table(reports: list[Report]) -> str:
    """Return how fast each kernel of cuda-matmul is, by its newest report."""
    head = ("kernel", "operands", "TFLOP/s", "cuBLAS, TFLOP/s", "of cuBLAS")
    lines = _newest_rows(reports, CUDA)
    return documents.table(
        head,
        [
            (
                f"`{line['step']}`",
                line["dtype"],
                f"{line['tflops']:.1f}",
                f"{line['cublas_tflops']:.1f}",
                f"{line['cublas_ratio']:.3f}",
            )
            for line in lines
            # Kernels that a GPU cannot run have no figures.
            if "tflops" in line
        ],
    )


def languages_table(reports: list[Report]) -> str:
    """Return how fast each problem is in each language and by a library, by the newest report."""
    head = ("problem", *(f"{name}, TFLOP/s" for name in LANGUAGES.values()), "library, TFLOP/s")
    speeds: dict[str, dict[str, float]] = {}
    for line in _newest_rows(reports, TILES):
        if "problem" in line:
            speeds.setdefault(line["problem"], {})[line["by"]] = line["tflops"]
    return documents.table(
        (*head, "tile C++ of library"),
        [
            (_problem(problem), *(f"{found[by]:.0f}" for by in LANGUAGES), *_library(found))
            for problem, found in speeds.items()
        ],
    )


def _problem(name: str) -> str:
    kind, size = name.split("_")
    return f"product, {size}" if kind == "gemm" else f"attention, {kind}, {size}"


def _library(found: dict[str, float]) -> tuple[str, str]:
    (name,) = found.keys() & LIBRARIES.keys()
    ratio = found[TILES] / found[name]
    return f"{LIBRARIES[name]} {found[name]:.0f}", f"{ratio:.3f}"


def programs_table(reports: list[Report]) -> str:
    """Return how long the programs of each language are and compile, by the newest report."""
    head = ("kernel", "language", "lines of code", "compiles in, s")
    return documents.table(
        head,
        [
            (
                line["kernel"],
                LANGUAGES[line["by"]],
                str(line["lines"]),
                _compiling(line),
            )
            for line in _newest_rows(reports, TILES)
            if "kernel" in line
        ],
    )


def _compiling(line: dict[str, Any]) -> str:
    """Return the seconds of each compiler that was there, or of the only one."""
    found = {
        name: line[f"{name}_seconds"] for name in ("nvcc", "nvrtc") if f"{name}_seconds" in line
    }
    if not found:
        return f"{line['compile_seconds']:.1f}"
    return ", ".join(f"{seconds:.1f} by {name}" for name, seconds in found.items())


def peers_table(reports: list[Report]) -> str:
    """Return how fast each way between two GPUs is at each size, by p2p-cpp's newest report.

    The slowest pair's figures, in GB/s.
    """
    head = ("bytes", *PEER_WAYS.values())
    found = [report for report in reports if report["name"] == PEERS and report["gpus"] > 1]
    newest = max(found, key=lambda report: str(report["written"]), default=None)
    lines = [] if newest is None else [row for row in newest["result"]["rows"] if "bytes" in row]
    sizes = sorted({line["bytes"] for line in lines})
    return documents.table(
        head,
        [
            (
                f"{size:,}",
                *(
                    _least([line for line in lines if line["bytes"] == size], f"{way}_gb_per_s")
                    for way in PEER_WAYS
                ),
            )
            for size in sizes
        ],
    )


def _least(lines: list[dict[str, Any]], column: str) -> str:
    """Return the smallest figure of a column, which pairs without access need not have."""
    found = [float(line[column]) for line in lines if column in line]
    return f"{min(found):.2f}" if found else "-"


def packed_table(reports: list[Report]) -> str:
    """Return attention over packed sequences against its rivals, from its newest report.

    A ratio is the rival's time over ours.
    """
    head = ("mask", "pass", "TFLOP/s", *(f"of {name}" for name in PACKED_RIVALS.values()))
    return documents.table(
        head,
        [
            (
                line["mask"],
                line["pass"],
                f"{line['tflops']:.0f}",
                *(_shown(line, f"{rival}_ratio", 3) for rival in PACKED_RIVALS),
            )
            for line in _newest_rows(reports, PACKED)
        ],
    )


def gathered_table(reports: list[Report]) -> str:
    """Return each way's time for a product with a gathered matrix, against NCCL's all-gather.

    Of symmetric-memory's newest report. A ratio is NCCL's time over the way's.
    """
    rivals = [way for way in GATHERINGS if way not in ("nccl", "alone")]
    head = (
        "rows of A",
        *GATHERINGS.values(),
        *(f"{GATHERINGS[way].removesuffix(', us')} / NCCL" for way in rivals),
    )
    lines = [row for row in _newest_rows(reports, SYMMETRIC) if row["part"] == "matmul"]
    return documents.table(
        head,
        [
            (
                f"{line['rows']:,}",
                *(_shown(line, f"{way}_us", 1) for way in GATHERINGS),
                *(_shown(line, f"{way}_nccl_ratio", 3) for way in rivals),
            )
            for line in lines
        ],
    )


def one_sided_table(reports: list[Report]) -> str:
    """Return the times of puts and gets at each size, from the newest report of that part.

    In microseconds, with GB/s behind.
    """
    head = ("bytes", *ONE_SIDED.values())
    lines = [row for row in _newest_rows(reports, ONE_SIDED_RUN, SYMMETRIC) if "way" in row]
    by_place = {(line["size_bytes"], line["way"]): line for line in lines}
    return documents.table(
        head,
        [
            (f"{size:,}", *(_time_and_speed(by_place.get((size, way))) for way in ONE_SIDED))
            for size in sorted({line["size_bytes"] for line in lines})
        ],
    )


def _newest_rows(reports: list[Report], *names: str) -> list[dict[str, Any]]:
    """Return the rows of the newest report of runs; none where there is none."""
    newest = _newest(reports, *names)
    return [] if newest is None else list(newest["result"]["rows"])


def _newest(reports: list[Report], *names: str) -> Report | None:
    """Return the newest report of runs."""
    found = [report for report in reports if report["name"] in names]
    return max(found, key=lambda report: str(report["written"]), default=None)


def _shown(line: dict[str, Any], column: str, digits: int) -> str:
    return f"{line[column]:,.{digits}f}" if column in line else "-"


def _time_and_speed(line: dict[str, Any] | None) -> str:
    return "-" if line is None else f"{line['us']:,.1f} ({line['gb_per_s']:.3g})"


def transformer_table(reports: list[Report]) -> str:
    """Return the speed and memory of each way to distribute the transformer."""
    head = ("run", "tokens/s", "MFU", "memory, MiB", "kernels_ratio", "Triton")
    found = [each for each in reports if each["workload"] == "transformer"]
    return documents.table(head, [_transformer_row(each) for each in found])


def _transformer_row(report: Report) -> tuple[str, ...]:
    figures = report["result"]["metrics"]
    kernels = ", `--kernels all`" if figures.get("kernels") == "all" else ""
    return (
        f"{_device(report)}, `{figures['parallel']}`{kernels}",
        f"{figures['tokens_per_s']:,.0f}",
        # A GPU whose peak is not known has no figure.
        f"{figures['mfu']:.3f}" if "mfu" in figures else "-",
        f"{figures['peak_memory_mib']:,}",
        f"{figures['kernels_ratio']:.3f}",
        report["versions"]["triton"],
    )


def _bar_row(bar: Bar, report: Report | None) -> tuple[str, ...]:
    if report is None:
        return (bar.what, bar.target, "-", "not yet run", "-", "-", "-", "-")
    result = report["result"]
    ratio, figure = (_picked(pick, result) for pick in (bar.ratio, bar.figure))
    judged = ratio if bar.ratio is not None else figure
    met = "-" if judged is None else "yes" if bar.holds(judged) else "**no**"
    return (
        bar.what,
        bar.target,
        "-" if ratio is None else f"{ratio:.3f}",
        "-" if figure is None else f"{figure:,.{bar.digits}f} {bar.unit}",
        met,
        _device(report),
        _versions(report),
        str(report["written"])[:10],
    )


def _picked(pick: Pick | None, result: Report) -> float | None:
    """Return what a target picks from a result; None if it is missing."""
    try:
        return None if pick is None else pick(result)
    except (KeyError, ValueError):
        return None


def _device(report: Report) -> str:
    return f"{report['gpus']} x {report['result']['metrics']['device']}"


def _versions(report: Report) -> str:
    versions = [
        f"{name} {report['versions'][package]}"
        for package, name in NAMED.items()
        if package in report["versions"] and (name != "NCCL" or report["gpus"] > 1)
    ]
    return ", ".join([*versions, f"driver {report['driver']}"])


TABLES: Final[dict[str, dict[str, Callable[[list[Report]], str]]]] = {
    "workloads/README.md": {"index": index_table},
    "workloads/targets.md": {"bars": bars_table},
    "workloads/matrix-products.md": {
        CUDA: steps_table,
        TILES: languages_table,
        f"{TILES}-programs": programs_table,
    },
    "workloads/attention.md": {PACKED: packed_table},
    "workloads/cnn.md": {CNN: techniques_table},
    "workloads/transformer.md": {"transformer": transformer_table},
    "workloads/peer-memory.md": {
        PEERS: peers_table,
        "gathered": gathered_table,
        "one-sided": one_sided_table,
    },
    "reports/workloads/README.md": {"runs": runs_table},
}
"""The tables of each page, by the page's path in docs and the name in the table's marks."""


def main(arguments: list[str], *, docs: Path = DOCUMENTS, reports: Path = REPORTS) -> int:
    """Write the tables, or report whether they are up to date."""
    kept = read(reports)
    check = arguments == ["--check"]
    changed = [page for page in TABLES if _write(docs / page, TABLES[page], kept, check=check)]
    if check:
        for page in changed:
            print(f"{docs / page} differs from the reports; run `make workloads-table`")
        return int(bool(changed))
    print(f"{docs}: {len(kept)} reports, {len(changed)} of {len(TABLES)} pages changed")
    return 0


def _write(
    page: Path,
    tables: dict[str, Callable[[list[Report]], str]],
    reports: list[Report],
    *,
    check: bool,
) -> bool:
    """Write the tables of a page unless they are only checked, and return whether they changed."""
    before = after = page.read_text()
    for name, make in tables.items():
        after = documents.replaced(after, name, make(reports))
    if after != before and not check:
        page.write_text(after)
    return after != before


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
