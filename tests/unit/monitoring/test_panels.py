# SPDX-License-Identifier: Apache-2.0
"""Every panel has an answer, and the same one where NVIDIA's exporter is scraped, too."""

import json
import pathlib
import re

import dashboard_queries
import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
RULES = ROOT / "charts/gpupack/files/monitoring/rules.yaml"
EXPORTED = ROOT / "tests/unit/agent/recordings/dcgm_exporter.prom"
SELECTOR = re.compile(r"\b((?:gpupack[_:]|DCGM_)[A-Za-z0-9_:]+|up)\b(\{[^}]*\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
QUERIES = [expr.replace("$namespace", ".*") for _, expr in dashboard_queries.QUERIES]
LOOK = "30m"
OURS = {"job": "gpupack-agent", "node": "n1", "instance": "10.0.0.1:9443"}


def asked():
    """What panels, and the rules that they read, select: names and the labels that match."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = {
        rule["record"]: rule["expr"]
        for group in groups
        for rule in group["rules"]
        if "record" in rule
    }
    for expr in (*QUERIES, *rules.values()):
        for name, labels in selected(expr):
            if name in rules:
                yield from ((base, own | labels) for base, own in selected(rules[name]))
            else:
                yield name, labels


def selected(expr):
    for name, matchers in SELECTOR.findall(expr):
        yield (
            name,
            {
                label: _matched(how, text)
                for label, how, text in MATCHER.findall(matchers)
                if text != ".*"
            },
        )


def _matched(how, text):
    """A value that the matcher takes."""
    if how.startswith("!"):
        return "another"
    first = text.split("|")[0] if how == "=~" else text
    return first.replace(".*", "x").replace("..", "00")


def series():
    """A value a minute of all that is asked for; counters and buckets grow."""
    found = {}
    for name, labels in asked():
        for bucket in [{"le": "1"}, {"le": "+Inf"}] if name.endswith("_bucket") else [{}]:
            key = written(
                name, {"namespace": "team", "pod": "p", "kind": "k"} | OURS | labels | bucket
            )
            found[key] = "0+700x60" if re.search("_(total|bucket)$", name) else "700x60"
    return found


def exported():
    """NVIDIA's exporter on the same node, scraped by the same Prometheus."""
    others = {"job": "nvidia-dcgm-exporter", "instance": "10.0.0.1:9400", "node": "n1"}
    found = {written("up", others): "1x60"}
    for line in EXPORTED.read_text().splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            found[written(name, labels | others)] = "700x60"
    return found


def written(name, labels):
    pairs = ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
    return f"{name}{{{pairs}}}"


@pytest.fixture(scope="module")
def answers(promtool, tmp_path_factory):
    """What promtool computes, by expression."""

    def computed(shown):
        group = {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in shown.items()],
            # Nothing is expected, so that it prints what it got.
            "promql_expr_test": [{"expr": expr, "eval_time": LOOK} for expr in QUERIES],
        }
        document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [group]}
        path = tmp_path_factory.mktemp("panels") / "case.yaml"
        path.write_text(yaml.safe_dump(document))
        done = promtool("test", "rules", str(path))
        found = re.findall(
            r'expr: ("(?:.*)"), time: .*\n.*exp:.*\n\s*got:\s*(.*)', done.stderr + done.stdout
        )
        return {json.loads(expr): got for expr, got in found}

    return computed(series()), computed(series() | exported())


@pytest.mark.parametrize("expr", sorted(set(QUERIES)))
def test_a_panel_shows_the_same_with_nvidias_exporter_installed(answers, expr):
    alone, with_exporter = answers
    assert alone[expr] not in {"", "nil"}
    assert with_exporter[expr] == alone[expr]


def test_power_of_a_gpu_that_both_exporters_report_counts_once(answers):
    (expr,) = (each for each in QUERIES if each.startswith("sum by (node) (DCGM_FI_DEV_POWER"))
    assert [found[expr] for found in answers] == ['{node="n1"} 7E+02'] * 2
