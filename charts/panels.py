# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a module of a script, not a package
"""Panels of a Grafana dashboard as values, and the JSON that Grafana reads.

grafanalib is not used: it writes the panels of Grafana 8 and does not support `timeseries` options.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

Kind = Literal["timeseries", "stat", "bargauge", "table", "state-timeline"]
Json = dict[str, Any]

COLUMNS: Final = 24
"""Number of columns of Grafana's grid."""

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclasses.dataclass(frozen=True)
class Query:
    """One expression. `legend` is the template for the names of its series."""

    expr: str
    legend: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel. `unit` is a unit ID of Grafana; width and height are cells of its grid."""

    title: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    unit: str = "short"
    description: str = ""
    width: int = 8
    height: int = 7
    stacked: bool = False
    max_value: float | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of panels under one title, from left to right."""

    title: str
    panels: tuple[Panel, ...]


def render_dashboard(title: str, uid: str, rows: Sequence[Row], *, description: str) -> Json:
    """Return the JSON document of the dashboard. Equal rows give equal documents."""
    return {
        "title": title,
        "uid": uid,
        "description": description,
        "tags": ["gpupack", "gpu", "kubernetes"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _namespaces()]},
        "panels": list(_place_panels(rows)),
    }


def iterate_queries(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """Yield the title of the panel and the expression of each query."""
    for row in rows:
        for panel in row.panels:
            for query in panel.queries:
                yield panel.title, query.expr


def _place_panels(rows: Sequence[Row]) -> Iterator[Json]:
    number, top = 1, 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {
            "type": "row",
            "title": row.title,
            "id": number,
            "gridPos": place,
            "collapsed": False,
            "panels": [],
        }
        number, top, left, height = number + 1, top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            yield _panel(panel, number, x=left, y=top)
            number, left, height = number + 1, left + panel.width, max(height, panel.height)
        top += height


def _panel(panel: Panel, number: int, *, x: int, y: int) -> Json:
    built: Json = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "id": number,
        "datasource": DATASOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "targets": [_target(panel, query, at) for at, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }
    return built


def _target(panel: Panel, query: Query, at: int) -> Json:
    now = panel.kind in {"stat", "bargauge", "table"}
    target: Json = {
        "refId": chr(ord("A") + at),
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": now,
        "range": not now,
    }
    if panel.kind == "table":
        target["format"] = "table"
    return target


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0}
    if panel.max_value is not None:
        defaults["max"] = panel.max_value
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        fill = 30 if panel.stacked else 8
        defaults["custom"] = {"fillOpacity": fill, "lineWidth": 1, "stacking": stacking}
    return defaults


def _options(panel: Panel) -> Json:
    match panel.kind:
        case "timeseries":
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
        case "stat" | "bargauge":
            return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return {}


def _datasource() -> Json:
    about = {"name": "datasource", "label": "Prometheus"}
    return {**about, "type": "datasource", "query": "prometheus"}


def _namespaces() -> Json:
    query = "label_values(gpupack_queue_quota_gpus, namespace)"
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": "namespaces"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
