# SPDX-License-Identifier: Apache-2.0
"""Names and units of all metrics, and the page that lists them."""

import pathlib
import re

import prometheus_client
import pytest

ROOT = pathlib.Path(__file__).parents[3]
PARTS = ("extender", "operator", "agent", "api")
OF_DCGM_EXPORTER = re.compile(r"^(DCGM_|gpupack_agent_gpu_(health|throttled) label names)")
"""promtool would have `modelName` in snake case; dcgm-exporter's dashboards ask for that label."""


@pytest.mark.parametrize("part", PARTS)
def test_names_and_units_follow_prometheus_conventions(part, registries, promtool):
    text = prometheus_client.generate_latest(registries[part]).decode()
    assert "gpupack_" in text
    done = promtool("check", "metrics", text=text)
    found = [line for line in done.stderr.splitlines() if not OF_DCGM_EXPORTER.match(line)]
    assert found == []


def test_promtool_rejects_an_invalid_name(promtool):
    wrong = "# HELP gpupack_time_milliseconds T.\n# TYPE gpupack_time_milliseconds gauge\n"
    done = promtool("check", "metrics", text=f"{wrong}gpupack_time_milliseconds 1\n")
    assert "use base unit" in done.stderr


def test_the_page_lists_every_metric(metrics_table, registries):
    text, replaced = metrics_table.PAGE.read_text(), metrics_table.replaced
    assert replaced(text, metrics_table.MARKS, metrics_table.table(registries)) == text


def test_metrics_of_our_own_have_our_prefix(registries):
    names = {family.name for registry in registries.values() for family in registry.collect()}
    assert {name for name in names if not re.match("gpupack_|DCGM_FI_", name)} == set()
