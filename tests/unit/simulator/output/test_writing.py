# SPDX-License-Identifier: Apache-2.0
"""The folder with everything, the report and the terminal's table."""

import io
import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console
from run_builders import done, held, run, sample

from gpupack_simulator.output.digest import digest
from gpupack_simulator.output.report import LARGEST_SVG, Picture, report
from gpupack_simulator.output.table import tables
from gpupack_simulator.output.verdict import verdict
from gpupack_simulator.output.writing import digested, write

VOID = {"meta", "img", "br"}


def runs():
    for policy, wait in (("fgd", 1.0), ("<b>&", 2.0)):
        yield run(
            policy=policy,
            jobs=(done("a", 2, start=wait, duration=5),),
            samples=(sample(0, 0, queued=1, fragmented=0), sample(wait, 2000, fragmented=1000)),
            occupancy=(held("n1/0", "a", wait, wait + 5), held("n1/1", "a", wait, wait + 5)),
            allocated_milli_time=10_000.0,
            parameters={"discipline": "fifo", "load": 0.95},
        )


class Elements(HTMLParser):
    """Opens and closes in order, or fails."""

    def __init__(self, text):
        super().__init__()
        self.open, self.images, self.tags = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("out")
    write(runs(), path, command="gpupack-simulator compare 'a b.yaml'")
    return path


def test_everything_is_written(folder):
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found >= {
        "results.json",
        "results.csv",
        "report.html",
        "runs/fgd/0.json",
        "runs/fgd/0-jobs.csv",
        "runs/_b__/0.json",
        "plots/allocation.png",
        "plots/allocation.svg",
        "plots/gantt-fgd.png",
    }


def test_the_results_can_be_read_back(folder):
    found = json.loads((folder / "results.json").read_text())
    assert found["results"]["fgd"]["0"]["allocation_percent"] == 25


def test_the_report_is_one_file_without_anything_from_elsewhere(folder):
    text = (folder / "report.html").read_text()
    page = Elements(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "iframe"}
    assert all(image["src"].startswith("data:image/") for image in page.images)
    assert not re.search(r"(src|href)=\"?https?:|url\(", text)


def test_every_picture_of_the_report_has_a_text_alternative(folder):
    page = Elements((folder / "report.html").read_text())
    assert len(page.images) >= 6
    assert all(len(image["alt"]) > 20 for image in page.images)


def test_the_report_says_what_came_out_and_how_to_repeat_it(folder):
    text = (folder / "report.html").read_text()
    assert "fgd did best: a mean wait of 1.000 steps" in text
    assert "gpupack-simulator compare &#39;a b.yaml&#39;" in text
    assert '<th scope="row">load</th><td>0.95</td>' in text


def test_names_cannot_smuggle_markup_into_the_report(folder):
    text = (folder / "report.html").read_text()
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;" in text


def test_a_large_picture_goes_into_the_report_as_png():
    small, large = (Picture("t", "e", b"png", b"s" * size) for size in (1, LARGEST_SVG + 1))
    assert small.source.startswith("data:image/svg+xml;base64,")
    assert large.source.startswith("data:image/png;base64,")


def test_a_report_on_nothing_says_so():
    text = report([], [])
    assert Elements(text).open == []
    assert verdict([]) in text


def test_nothing_can_be_written(tmp_path):
    write([], tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["results"] == {}


def test_only_the_first_run_of_a_policy_keeps_what_pictures_need():
    kept = digested([*runs(), *runs()])
    assert [one.usage is not None for one in kept] == [True, True, False, False]


def test_the_same_runs_give_the_same_report():
    digests = digested(runs())
    assert report(digests, []) == report(digests, [])


def test_the_terminal_shows_tables_and_the_verdict():
    text = io.StringIO()
    Console(file=text, width=100).print(tables([digest(one) for one in runs()]))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert lines[0] == "How well the cluster was used"
    assert any(re.match(r" fgd .* 25\.00 .* 1\.000\*", line) for line in lines)
    assert "one seed; * best of its column" in lines
    assert lines[-2].startswith("fgd did best")


def test_a_table_of_nothing_is_the_verdict_alone():
    text = io.StringIO()
    Console(file=text, width=100).print(tables([]))
    assert "Nothing was run" in text.getvalue()
