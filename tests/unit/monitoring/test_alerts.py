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


LATE = 4


def expected(case, summary=""):
    rule = ALERTS[case.alert]
    annotations = rule["annotations"] | {"summary": summary or case.summary}
    if case.description:
        annotations["description"] = case.description
    return {"exp_labels": rule["labels"] | case.labels, "exp_annotations": annotations}


def written(case):
    """As promtool reads it: it fires, also where there was no series before, and not for others."""

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
        group(late(case.fires), (case.at + LATE, [expected(case, case.late_summary)])),
        group(case.quiet, *((minute, []) for minute in minutes)),
    ]


def late(series):
    """The same from a minute on before which there is no series at all."""
    return {name: " ".join([*["_"] * LATE, values]) for name, values in series.items()}


def shown(registries, case):
    """Names and labels of a part that has just begun, without those that Prometheus adds."""
    names = {re.match(r"\w+", series)[0] for series in case.fires}
    for registry in registries.values():
        for family in registry.collect():
            for sample in family.samples:
                if sample.name in names:
                    yield sample.name, sample.labels, sample.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_counters_of_alerts_exist_before_the_first_event(case, registries):
    known = list(shown(registries, case))
    for series in case.fires:
        name, labels = re.match(r"\w+", series)[0], dict(re.findall(r'(\w+)="([^"]*)"', series))
        if not name.endswith(("_total", "_bucket")):
            continue
        wanted = {at: text for at, text in labels.items() if at not in {"job", "pod", "node"}}
        if "le" in wanted and wanted["le"] != "+Inf":
            wanted["le"] = f"{float(wanted['le'])}"
        found = [value for at, has, value in known if at == name and wanted.items() <= has.items()]
        assert found, f"{series} is not there from the start"
        assert set(found) == {0.0}


@pytest.mark.parametrize("part", ["extender", "operator", "agent", "api"])
def test_no_metric_has_a_label_that_prometheus_sets_itself(part, registries, metrics_table):
    for family in registries[part].collect():
        labels = set(metrics_table.labels(family, registries[part]))
        assert labels.isdisjoint({"job", "instance"}), family.name


def test_without_series_only_alerts_about_absence_fire(promtool, tmp_path):
    looks = [
        {
            "eval_time": "20m",
            "alertname": alert,
            "exp_alerts": [{"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}]
            if "absent(" in rule["expr"]
            else [],
        }
        for alert, rule in ALERTS.items()
    ]
    group = {"interval": "1m", "input_series": [], "alert_rule_test": looks}
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [group]}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", str(tmp_path / "case.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_and_every_case_an_alert():
    assert sorted(case.alert for case in CASES) == sorted(ALERTS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_only_for_its_condition(case, promtool, tmp_path):
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": written(case)}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", str(tmp_path / "case.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules(promtool):
    done = promtool("check", "rules", "--lint=all", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_for_with_a_reason_and_a_runbook_url(alert):
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


def test_no_runbook_belongs_to_a_removed_alert():
    pages = {page.stem for page in RUNBOOKS.glob("Gpupack*.md")}
    assert pages == set(ALERTS)


def test_every_metric_of_the_rules_exists(families):
    names = set(re.findall(r"\b(gpupack_[a-z_]+)\b", RULES.read_text()))
    names -= {"gpupack_"}
    unknown = {name for name in names if not families(name)}
    assert unknown == set()
