# SPDX-License-Identifier: Apache-2.0
"""The manifests of docs/migrate are those that `gpupack convert` prints, and valid."""

import pathlib
import re
import shlex

import pytest
import yaml
from click.testing import CliRunner
from crd_schemas import violations

from gpupack_cli.commands.convert import command

ROOT = pathlib.Path(__file__).parents[3]
PAGES = {path.name: path.read_text() for path in (ROOT / "docs" / "migrate").glob("*.md")}
FILE = re.compile(r"^`([\w.]+)`[^\n]*:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONVERSION = re.compile(
    r"^```console\n\$ (gpupack convert [^\n]*)\n```\n\n```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE
)
COMMAND = re.compile(r"^\$ (gpupack convert [^\n|]*)", re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def shown():
    return [
        pytest.param(name, line, result, id=f"{name}: {line}")
        for name, page in sorted(PAGES.items())
        for line, result in CONVERSION.findall(page)
    ]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a documented command in a folder with the page's files; return its status and output."""

    def of(page, line):
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        for name, content in FILE.findall(page):
            (tmp_path / name).write_text(content)
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(command, shlex.split(line)[2:])
        assert done.exception is None, done.stderr
        return done.stdout

    return of


@pytest.mark.parametrize(("name", "line", "result"), shown())
def test_a_shown_result_is_that_of_the_command(run, name, line, result):
    printed = list(yaml.safe_load_all(run(PAGES[name], line)))
    assert printed == list(yaml.safe_load_all(result))


def test_every_page_of_a_source_with_manifests_shows_a_conversion():
    pages = {each.values[0] for each in shown()}
    assert pages == {"kueue.md", "kai.md", "hami.md", "volcano.md", "slurm.md"}


@pytest.mark.parametrize("page", ["migrate/README.md", "cli.md"])
def test_other_conversions_of_a_page_lose_nothing(run, page):
    text = (ROOT / "docs" / page).read_text()
    lines = COMMAND.findall(text)
    assert lines
    for line in lines:
        assert run(text, line)
        pathlib.Path("examples").unlink()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_gpupacks_objects_of_a_page_are_valid(name):
    documents = [each for block in YAML.findall(PAGES[name]) for each in yaml.safe_load_all(block)]
    ours = [each for each in documents if each["apiVersion"] == "gpupack.dev/v1beta1"]
    assert [violations(each) for each in ours] == [[] for _ in ours]


def test_the_index_names_every_page_and_each_names_its_readers():
    index = PAGES["README.md"]
    assert {name for name in PAGES if f"({name})" not in index} == {"README.md"}
    assert {name for name, page in PAGES.items() if "This page is for" not in page} == set()
