# SPDX-License-Identifier: Apache-2.0
"""Writes the report of `make demo-gpu`: JSON for programs, Markdown and HTML for people."""

import datetime as dt
import html
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Row = tuple[str, str]
LIMIT_SECONDS = 300
PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ border: 1px solid #888; padding: .3rem .6rem; text-align: left; vertical-align: top; }}
td {{ overflow-wrap: anywhere; }}
</style>
<h1>{title}</h1>"""


def build(outcome: Json, phases: Mapping[str, float], *, seconds: float, versions: Json) -> Json:
    """Return the report."""
    now = dt.datetime.now(dt.UTC)
    return {
        "written": now.isoformat(timespec="seconds"),
        "succeeded": not outcome["error"],
        "error": outcome["error"],
        "seconds": seconds,
        "limit_seconds": LIMIT_SECONDS,
        "phases": dict(phases),
        "gpus": outcome.get("gpus", []),
        "driver": outcome.get("driver", ""),
        "versions": versions,
        "results": outcome["results"],
    }


def write(report: Json, folder: Path) -> Path:
    """Write all formats; return the path of the JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"demo-gpu-{len(report['gpus'])}x{short_model(report)}"
    path = folder / f"{name}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    path.with_suffix(".md").write_text(render(report))
    path.with_suffix(".html").write_text(render_html(report))
    return path


def short_model(report: Json) -> str:
    """Return the short name of the GPU: `h200` for `NVIDIA H200`."""
    models = {str(gpu["model"]) for gpu in report["gpus"]}
    words = "-".join(sorted(models)).lower().replace("nvidia ", "").split()
    return "-".join(words) or "none"


def render(report: Json) -> str:
    """Return the report in Markdown."""
    lines = [f"# {title(report)}", "", *between(opening(report)), ""]
    for head, rows in tables(report):
        lines += [row(head), row("---" for _ in head), *map(row, rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def render_html(report: Json) -> str:
    """Return the report as one HTML page without external resources."""
    parts = [PAGE.format(title=html.escape(title(report)))]
    parts += [f"<p>{html.escape(text)}</p>" for text in opening(report)]
    for head, rows in tables(report):
        cells = [html_row("th", head), *(html_row("td", each) for each in rows)]
        parts += ["<table>", *cells, "</table>"]
    return "\n".join(parts) + "\n"


def title(report: Json) -> str:
    """Return the title of the report."""
    return f"demo-gpu on {gpus_in_words(report)}"


def opening(report: Json) -> tuple[str, str]:
    """Return the outcome, and the versions on which the figures depend."""
    outcome = "succeeded" if report["succeeded"] else f"failed: {report['error']}"
    seconds = f"{report['seconds']:.0f} s of {LIMIT_SECONDS} s allowed"
    versions = ", ".join(f"{key} {value}" for key, value in report["versions"].items())
    return f"{report['written']}: {outcome}; {seconds}.", f"Driver {report['driver']}; {versions}"


def tables(report: Json) -> list[tuple[Row, list[Row]]]:
    """Return two tables, each with head and rows: seconds of phases, and results of checks."""
    phases = [(name, f"{seconds:.1f}") for name, seconds in report["phases"].items()]
    checks = [(str(result["check"]), in_words(result)) for result in report["results"]]
    return [(("phase", "seconds"), phases), (("check", "result"), checks)]


def between(texts: Iterable[str]) -> list[str]:
    """Return paragraphs with empty lines between them."""
    return "\n\n".join(texts).splitlines()


def row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def html_row(tag: str, cells: Iterable[str]) -> str:
    """Return a row of an HTML table."""
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def gpus_in_words(report: Json) -> str:
    """Return the GPUs as text, such as `2 x NVIDIA H200 (143771 MiB)`."""
    gpus = report["gpus"]
    if not gpus:
        return "a host whose GPUs were never reported"
    return f"{len(gpus)} x {gpus[0]['model']} ({gpus[0]['memoryMiB']} MiB)"


def in_words(result: Json) -> str:
    """Return the result of one check as a table's cell."""
    if "headline" in result:
        return headline(result)
    if "results" in result:
        each = result["results"].items()
        return "; ".join(f"{name}: {headline(measured)}" for name, measured in each)
    if "figures" in result:
        return figures_in_words(result["figures"])
    return "yes"


def headline(measured: Json) -> str:
    """Return the headline, with our Triton kernel's figure if there is one."""
    triton = measured["metrics"].get("triton_tflops")
    return str(measured["headline"]) + (f" (Triton {triton:.0f})" if triton else "")


def figures_in_words(figures: Any) -> str:
    """Return nested figures as text, such as `halves: 318.0, 318.0; events: …`."""
    if isinstance(figures, dict):
        parts = ((key, figures_in_words(value)) for key, value in figures.items())
        return "; ".join(
            f"{key}: ({text})" if isinstance(figures[key], dict) else f"{key}: {text}"
            for key, text in parts
        )
    if isinstance(figures, list):
        return ", ".join(map(figures_in_words, figures))
    return str(figures)
