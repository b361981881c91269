# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""The Grafana dashboard: `python charts/dashboard.py FILE` writes it."""

import json
import pathlib
from typing import Final, TypeVar

import click
from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model

Panel = TypeVar("Panel", bargauge.Panel, stat.Panel, timeseries.Panel)
SCHEMA_VERSION: Final = 39
"""Of Grafana 11."""
DATASOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
NAMESPACES: Final = "label_values(gpupack_queue_quota_gpus, namespace)"
AGENT: Final = '{job="gpupack-agent"}'
"""Selects the agent's series. NVIDIA's exporter has series of the same names, so a query over both
would count each GPU twice."""


def graph(
    title: str,
    *queries: tuple[str, str],
    unit: str = "short",
    description: str = "",
    stacked: bool = False,
    width: int = 8,
    max_value: float | None = None,
) -> timeseries.Panel:
    """Return a panel of expressions over time, each with the template for the names of its series.

    `unit` is a unit ID of Grafana; `width` is in columns of its grid, which has 24.
    """
    mode = options.StackingMode.NORMAL if stacked else options.StackingMode.NONE
    panel = _panel(timeseries.Panel(), title, unit, description, max_value).span(width).height(7)
    for number, (expr, legend) in enumerate(queries):
        panel.with_target(_query(expr, legend, number).range())
    return (
        panel.line_width(1)
        .fill_opacity(30 if stacked else 8)
        .stacking(common.StackingConfig().mode(mode).group("A"))
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(options.TooltipDisplayMode.MULTI)
            .sort(options.SortOrder.DESCENDING)
        )
    )


def figure(
    title: str,
    expr: str,
    *,
    unit: str = "short",
    description: str = "",
    max_value: float | None = None,
) -> stat.Panel:
    """Return a panel with one present value."""
    panel = _panel(stat.Panel(), title, unit, description, max_value).span(4).height(5)
    return panel.with_target(_query(expr).instant()).reduce_options(_last())


def bars(title: str, expr: str, legend: str, *, unit: str = "short") -> bargauge.Panel:
    """Return a panel with a bar for the present value of each series."""
    panel = _panel(bargauge.Panel(), title, unit, "", None).span(8).height(7)
    return panel.with_target(_query(expr, legend).instant()).reduce_options(_last())


def _panel(panel: Panel, title: str, unit: str, description: str, max_value: float | None) -> Panel:
    panel.title(title).unit(unit).description(description).datasource(DATASOURCE).min(0)
    return panel if max_value is None else panel.max(max_value)


def _query(expr: str, legend: str = "__auto", number: int = 0) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(expr).legend_format(legend).datasource(DATASOURCE)
    return query.ref_id(chr(ord("A") + number))


def _quantile(part: float, buckets: str, by: str = "le") -> str:
    return f"histogram_quantile({part}, sum by ({by}) ({buckets}))"


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(values=False)


CONTENT: Final[tuple[str | Builder[model.Panel], ...]] = (
    "Overview",
    figure("Allocated GPUs", "gpupack:gpus_given_out:ratio", unit="percentunit", max_value=1.0),
    figure("Free GPUs", 'max(gpupack_extender_devices{state="free"})'),
    figure("Running GPUJobs", 'sum(gpupack_operator_gpujobs{phase="Running"})'),
    figure("Pending GPUJobs and pods", "sum(max by (kind) (gpupack_queue_waiting))"),
    figure(
        "Longest wait within nominal quota",
        "max(gpupack_queue_starving_seconds) or vector(0)",
        unit="s",
        description="Jobs whose request is within their namespace's unused nominal quota.",
    ),
    figure("Unhealthy GPUs", 'max(gpupack_extender_devices{state="unhealthy"})'),
    "Allocation and fragmentation",
    graph(
        "GPUs by state", ("max by (state) (gpupack_extender_devices)", "{{state}}"), stacked=True
    ),
    graph(
        "Allocated GPUs by model",
        ('gpupack:gpus{amount="given_out"}', "{{model}} allocated"),
        ('gpupack:gpus{amount="capacity"}', "{{model}} capacity"),
    ),
    graph(
        "Fragmentation",
        ("max(gpupack_extender_fragmentation_ratio)", "fragmentation"),
        unit="percentunit",
        max_value=1.0,
        description="Fraction of free GPUs outside fully free nodes.",
    ),
    "Queue",
    graph(
        "Pending GPUJobs by reason",
        ('sum by (reason) (gpupack_operator_gpujobs{phase="Pending"})', "{{reason}}"),
        stacked=True,
    ),
    graph("Pending by kind", ("max by (kind) (gpupack_queue_waiting)", "{{kind}}"), stacked=True),
    graph(
        "Preemptions by reason",
        ("sum by (reason) (increase(gpupack_queue_preempted_total[5m]))", "{{reason}}"),
        description="Preempted jobs, workers and pods within 5 minutes.",
    ),
    graph(
        "Scheduling cycle duration",
        (_quantile(0.5, "rate(gpupack_queue_cycle_seconds_bucket[5m])"), "p50"),
        (_quantile(0.99, "rate(gpupack_queue_cycle_seconds_bucket[5m])"), "p99"),
        unit="s",
    ),
    graph(
        "Ended attempts by outcome",
        ("sum by (outcome) (increase(gpupack_operator_attempts_total[5m]))", "{{outcome}}"),
    ),
    graph(
        "Recovery time of jobs",
        (
            _quantile(0.9, "increase(gpupack_operator_recovery_seconds_bucket[1h])", "outcome, le"),
            "{{outcome}} p90",
        ),
        unit="s",
    ),
    "Quotas",
    graph(
        "Used GPUs by namespace",
        ('gpupack:quota_gpus{amount="used",namespace=~"$namespace"}', "{{namespace}}"),
        stacked=True,
        width=12,
    ),
    graph(
        "Nominal, used, borrowed and lent GPUs",
        ('sum by (amount) (gpupack:quota_gpus{namespace=~"$namespace"})', "{{amount}}"),
        width=6,
    ),
    graph(
        "Pending by namespace",
        (
            (
                "max by (namespace) "
                '(gpupack_queue_quota_jobs{state="waiting",namespace=~"$namespace"})'
            ),
            "{{namespace}}",
        ),
        width=6,
    ),
    "GPU health",
    graph(
        "GPUs by health", ("sum by (health) (gpupack_agent_gpu_health)", "{{health}}"), stacked=True
    ),
    graph(
        "GPUs in quarantine or on probation",
        ("max by (phase) (gpupack_operator_gpus_kept_out)", "{{phase}}"),
    ),
    graph(
        "GPU nodes and agents",
        ("count(max by (node) (gpupack_extender_node_gpus))", "GPU nodes"),
        (f"sum(up{AGENT})", "agents up"),
    ),
    graph(
        "Highest GPU temperature by node",
        (f"max by (node) (DCGM_FI_DEV_GPU_TEMP{AGENT})", "{{node}}"),
        unit="celsius",
    ),
    graph(
        "Throttled GPUs by reason", ("sum by (reason) (gpupack_agent_gpu_throttled)", "{{reason}}")
    ),
    graph(
        "Burn-ins per day by result",
        ("sum by (result) (increase(gpupack_operator_burn_ins_total[1d]))", "{{result}}"),
    ),
    "Utilization",
    graph(
        "GPU utilization by node",
        (f"avg by (node) (DCGM_FI_DEV_GPU_UTIL{AGENT})", "{{node}}"),
        unit="percent",
        max_value=100.0,
    ),
    graph(
        "Used part of granted GPU memory by pod",
        (
            (
                "topk(20, sum by (namespace, pod) "
                '(gpupack_agent_pod_gpu_memory_used_bytes{namespace=~"$namespace"}) / '
                "sum by (namespace, pod) (gpupack_agent_pod_gpu_memory_granted_bytes))"
            ),
            "{{namespace}}/{{pod}}",
        ),
        unit="percentunit",
    ),
    graph(
        "Granted GPUs by namespace",
        (
            ('sum by (namespace) (gpupack_agent_pod_gpu_granted_ratio{namespace=~"$namespace"})'),
            "{{namespace}}",
        ),
        stacked=True,
    ),
    graph(
        "Container starts with GPUs by outcome",
        ("sum by (outcome) (increase(gpupack_agent_container_starts_total[5m]))", "{{outcome}}"),
    ),
    graph(
        "Exceeded shares by action",
        ("sum by (action) (increase(gpupack_agent_share_overruns_total[5m]))", "{{action}}"),
    ),
    "Energy",
    graph(
        "GPU power by node",
        (f"sum by (node) (DCGM_FI_DEV_POWER_USAGE{AGENT})", "{{node}}"),
        unit="watt",
        stacked=True,
        width=12,
    ),
    graph(
        "GPU power by namespace",
        ('gpupack:namespace_gpu_power_watts:rate5m{namespace=~"$namespace"}', "{{namespace}}"),
        unit="watt",
        stacked=True,
        width=12,
        description="Power of GPUs, divided among their pods by granted part.",
    ),
    "Components",
    graph(
        "Extender: call duration p99",
        ("gpupack:extender_call_seconds:p99_rate5m", "{{verb}}"),
        unit="s",
    ),
    graph(
        "Extender: calls by outcome",
        ("sum by (verb, outcome) (rate(gpupack_extender_calls_total[5m]))", "{{verb}} {{outcome}}"),
        unit="reqps",
    ),
    graph(
        "REST API: call duration p99",
        ("gpupack:api_call_seconds:p99_rate5m", "{{route}}"),
        unit="s",
    ),
    graph(
        "REST API: calls by status",
        ("sum by (status) (rate(gpupack_api_calls_total[5m]))", "{{status}}"),
        ("sum(gpupack_api_calls_under_way)", "in progress, with streams"),
        unit="reqps",
    ),
    graph(
        "Operator: reconciles and queue depth",
        (
            "sum by (outcome) (rate(gpupack_operator_reconciles_total[5m]))",
            "{{outcome}} per second",
        ),
        ("max(gpupack_operator_work_queue_depth)", "queue depth"),
    ),
    graph(
        "Operator: reconcile duration p99",
        (_quantile(0.99, "rate(gpupack_operator_reconcile_seconds_bucket[5m])"), "p99"),
        unit="s",
    ),
    graph(
        "Failed requests to the API server",
        ("gpupack:kube_errors:ratio_rate5m", "{{job}}"),
        unit="percentunit",
    ),
    graph(
        "Age of the oldest watch",
        ("max by (job) (gpupack_extender_watch_age_seconds)", "{{job}}"),
        ("max by (job) (gpupack_api_watch_age_seconds)", "{{job}}"),
        unit="s",
    ),
    graph(
        "Unreadable objects",
        (
            "sum by (job, kind) (increase(gpupack_unreadable_objects_total[15m]))",
            "{{job}} {{kind}}",
        ),
    ),
    bars(
        "Certificate expiry",
        "min by (job) (gpupack_certificate_expiry_timestamp_seconds) - time()",
        "{{job}}",
        unit="s",
    ),
    bars("Replicas up", 'sum by (job) (up{job=~"gpupack-.*"})', "{{job}}"),
    graph(
        "Leaders",
        ("sum(gpupack_extender_deciding)", "scheduler"),
        ("sum(gpupack_operator_leading)", "operator"),
    ),
)
"""Panels from left to right and from top to bottom; a text is the title of a row."""


def render() -> str:
    """Return the text of the file."""
    dashboard = (
        build.Dashboard("gpupack")
        .uid("gpupack")
        .description("GPUs, queue, quotas, health, utilization, energy, and gpupack's components.")
        .tags(["gpupack", "gpu", "kubernetes"])
        .version(1)
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-3h", "now")
        .with_variable(
            build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(
            build.QueryVariable("namespace")
            .label("Namespace")
            .datasource(DATASOURCE)
            .query({"query": NAMESPACES, "refId": "namespaces"})
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(model.VariableSort.ALPHABETICAL_ASC)
            .multi(multi=True)
            .include_all(include_all=True)
            .all_value(".*")
            .current(model.VariableOption(text="All", value="$__all"))
        )
    )
    for each in CONTENT:
        if isinstance(each, str):
            dashboard.with_row(build.Row(each))
        else:
            dashboard.with_panel(each)
    built = dashboard.build()
    built.schema_version = SCHEMA_VERSION
    for number, placed in enumerate(built.panels or (), 1):
        placed.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=1) + "\n"


@click.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
def main(file: pathlib.Path) -> None:
    """Write the dashboard."""
    file.write_text(render())


if __name__ == "__main__":
    main()
