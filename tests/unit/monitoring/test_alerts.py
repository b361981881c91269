# SPDX-License-Identifier: Apache-2.0
"""Every alert fires for what it is about and for nothing else, and has its runbook."""

import pathlib
import re

import pytest
import yaml
from alert_cases import CASES

ROOT = pathlib.Path(__file__).parents[3]
RULES = ROOT / "charts/gpupack/files/monitoring/rules.yaml"
RUNBOOKS = ROOT / "docs/runbooks"
SECTIONS = ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation")


def alerts():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


ALERTS = alerts()


def expected(case):
    rule = ALERTS[case.alert]
    annotations = rule["annotations"] | {"summary": case.summary}
    if case.description:
        annotations["description"] = case.description
    return {"exp_labels": rule["labels"] | case.labels, "exp_annotations": annotations}


def written(case):
    """As promtool reads it: it fires, it does not fire yet, and at other series it stays silent."""

    def group(series, *looks):
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [
                {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": found}
                for minute, found in looks
            ],
        }

    minutes = range(1, case.at + 10)
    return [
        group(case.fires, (case.not_yet, []), (case.at, [expected(case)])),
        group(case.quiet, *((minute, []) for minute in minutes)),
    ]


def test_every_alert_has_a_case_and_every_case_an_alert():
    assert sorted(case.alert for case in CASES) == sorted(ALERTS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_it_fires_for_what_it_is_about_and_for_nothing_else(case, promtool, tmp_path):
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": written(case)}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", str(tmp_path / "case.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_what_prometheus_reads(promtool):
    done = promtool("check", "rules", "--lint=all", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_how_long_it_waits_why_and_where_to_read_on(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{alert}.md"
    before = re.search(rf"- alert: {alert}\n.*?\n( *for: [^\n]*)", RULES.read_text(), re.DOTALL)
    lines = before[0].splitlines()
    assert lines[-2].strip().startswith("#"), f"{alert}: say why it waits for so long"


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_runbook_with_commands(alert):
    text = (RUNBOOKS / f"{alert}.md").read_text()
    places = [text.index(section) for section in SECTIONS]
    assert places == sorted(places)
    diagnosis = text[places[2] : places[3]]
    assert "```sh" in diagnosis
    assert ALERTS[alert]["labels"]["severity"] in text


def test_there_is_no_runbook_of_an_alert_that_is_gone():
    pages = {page.stem for page in RUNBOOKS.glob("Gpupack*.md")}
    assert pages == set(ALERTS)


def test_every_metric_of_the_rules_is_one_that_a_part_shows(families):
    names = set(re.findall(r"\b(gpupack_[a-z_]+)\b", RULES.read_text()))
    names -= {"gpupack_"}
    unknown = {name for name in names if not families(name)}
    assert unknown == set()
