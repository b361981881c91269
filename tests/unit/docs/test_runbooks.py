# SPDX-License-Identifier: Apache-2.0
"""Commands of runbooks read all pods and lines, and pass gpupack's own admission policies."""

import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
RUNBOOKS = sorted((ROOT / "docs/runbooks").glob("*.md"))
VALUES = yaml.safe_load((ROOT / "charts/gpupack/values.yaml").read_text())
REPLICATED = {
    f"gpupack-{part}" for part in ("operator", "scheduler", "api") if VALUES[part]["replicas"] > 1
}
EXEMPT = VALUES["admission"]["protectHosts"]["exemptNamespaces"]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:kubectl|helm)\s[^`]+)`")
LOGGED = re.compile(r" logs [^|\n]*-(?:c extender|l|n)[^|\n]*\| grep (?:-\w+ (?:\d+ )?)*'([^']+)'")
SOURCES = [
    path
    for folder in ("agent", "apiserver", "extender", "lib", "operator")
    for path in (ROOT / folder).rglob("*.py")
]


def words(page, program):
    """Yield the words of each command of a page that starts in this way."""
    text = page.read_text()
    for line in ("\n".join(BLOCK.findall(text))).splitlines():
        for part in re.split(r" \| |; do |\$\(", line):
            if part.strip().startswith(program):
                yield part.split()
    yield from (each.split() for each in INLINE.findall(text) if each.startswith(program))


def log_reads(page):
    return [each for each in words(page, "kubectl") if "logs" in each]


@pytest.fixture(params=RUNBOOKS, ids=lambda page: page.stem)
def page(request):
    """A runbook."""
    return request.param


def test_logs_of_several_pods_are_read_beyond_the_last_ten_lines(page):
    short = [
        each
        for each in log_reads(page)
        if {"-l", "--selector"} & set(each) and not any(word.startswith("--tail") for word in each)
    ]
    assert short == [], "with a selector kubectl shows ten lines of each pod: set --tail"


def test_logs_of_a_component_are_read_from_each_of_its_replicas(page):
    one = [
        each
        for each in log_reads(page)
        if {word.removeprefix("deployment/") for word in each} & REPLICATED
        and "--all-pods" not in each
    ]
    assert one == [], "kubectl picks one pod, perhaps the standby: set --all-pods"


def test_previous_logs_are_read_although_some_pods_have_none(page):
    failing = [
        each
        for each in log_reads(page)
        if "--previous" in each
        and {"--all-pods", "--all-containers"} & set(each)
        and "--ignore-errors" not in each
    ]
    assert failing == [], "kubectl stops at a container without a previous run"


def test_pods_that_debug_a_node_are_admitted_and_reach_its_devices(page):
    for each in words(page, "kubectl debug node/"):
        assert each[each.index("-n") + 1] in EXEMPT, "gpupack-hosts refuses hostPID elsewhere"
        assert "--profile=sysadmin" in each, "other profiles open no device and read no kernel log"


def test_helm_gets_the_namespace_of_the_release(page):
    named = [each for each in words(page, "helm ") if "gpupack" in each]
    assert [each for each in named if "-n" not in each] == []


def test_a_component_logs_each_text_that_a_runbook_searches(page):
    code = "\n".join(path.read_text() for path in SOURCES)
    unknown = [text for text in LOGGED.findall(page.read_text()) if text not in code]
    assert [text for text in unknown if text != "kopf"] == []
