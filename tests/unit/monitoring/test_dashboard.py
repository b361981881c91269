# SPDX-License-Identifier: Apache-2.0
"""The dashboard as Grafana reads it, from charts/dashboard.py."""

import json
import pathlib
import re

import pytest
import yaml
from dashboard_queries import DASHBOARD, QUERIES

import dashboard

ROOT = pathlib.Path(__file__).parents[3]
FILES = ROOT / "charts/gpupack/files/monitoring"
NAME = re.compile(r"\b((?:gpupack[_:]|DCGM_)[A-Za-z0-9_:]+)")
COLUMNS = 24
"""Of Grafana's grid."""


@pytest.fixture(scope="module")
def document():
    return json.loads(DASHBOARD.read_text())


@pytest.fixture(scope="module")
def records():
    groups = yaml.safe_load((FILES / "rules.yaml").read_text())["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def test_the_dashboard_file_is_up_to_date():
    assert DASHBOARD.read_text() == dashboard.render()


@pytest.mark.parametrize("title", [title for title, _ in QUERIES])
def test_every_query_uses_exported_or_recorded_metrics(title, families, records):
    names = {name for at, expr in QUERIES if at == title for name in NAME.findall(expr)}
    assert {name for name in names if not families(name) and name not in records} == set()


def test_panels_do_not_overlap(document):
    taken = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= COLUMNS
        taken |= cells


def test_panel_ids_are_unique_and_queries_use_the_selected_datasource(document):
    shown = document["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    targets = [target for panel in shown for target in panel.get("targets", ())]
    assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}


def test_required_panels_have_a_row(document):
    rows = {panel["title"] for panel in document["panels"] if panel["type"] == "row"}
    wanted = {
        "Allocation and fragmentation",
        "Queue",
        "Quotas",
        "GPU health",
        "Utilization",
        "Energy",
    }
    assert wanted <= rows
