# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""The Grafana dashboard: `python charts/dashboard.py FILE` writes it."""

import json
import pathlib
from typing import Final

import click
from panels import Panel, Query, Row, render_dashboard

AGENT: Final = '{job="gpupack-agent"}'
"""Selects the agent's series. NVIDIA's exporter has series of the same names, so a query over both
would count each GPU twice."""

ROWS: Final = (
    Row(
        "Overview",
        (
            Panel(
                "Allocated GPUs",
                (Query("gpupack:gpus_given_out:ratio"),),
                kind="stat",
                unit="percentunit",
                width=4,
                height=5,
                max_value=1.0,
            ),
            Panel(
                "Free GPUs",
                (Query('max(gpupack_extender_devices{state="free"})'),),
                kind="stat",
                width=4,
                height=5,
            ),
            Panel(
                "Running GPUJobs",
                (Query('sum(gpupack_operator_gpujobs{phase="Running"})'),),
                kind="stat",
                width=4,
                height=5,
            ),
            Panel(
                "Pending GPUJobs and pods",
                (Query("sum(max by (kind) (gpupack_queue_waiting))"),),
                kind="stat",
                width=4,
                height=5,
            ),
            Panel(
                "Longest wait within nominal quota",
                (Query("max(gpupack_queue_starving_seconds) or vector(0)"),),
                kind="stat",
                unit="s",
                description="Jobs whose request is within their namespace's unused nominal quota.",
                width=4,
                height=5,
            ),
            Panel(
                "Unhealthy GPUs",
                (Query('max(gpupack_extender_devices{state="unhealthy"})'),),
                kind="stat",
                width=4,
                height=5,
            ),
        ),
    ),
    Row(
        "Allocation and fragmentation",
        (
            Panel(
                "GPUs by state",
                (Query("max by (state) (gpupack_extender_devices)", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Allocated GPUs by model",
                (
                    Query('gpupack:gpus{amount="given_out"}', "{{model}} allocated"),
                    Query('gpupack:gpus{amount="capacity"}', "{{model}} capacity"),
                ),
            ),
            Panel(
                "Fragmentation",
                (Query("max(gpupack_extender_fragmentation_ratio)", "fragmentation"),),
                unit="percentunit",
                max_value=1.0,
                description="Fraction of free GPUs outside fully free nodes.",
            ),
        ),
    ),
    Row(
        "Queue",
        (
            Panel(
                "Pending GPUJobs by reason",
                (
                    Query(
                        'sum by (reason) (gpupack_operator_gpujobs{phase="Pending"})', "{{reason}}"
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Pending by kind",
                (Query("max by (kind) (gpupack_queue_waiting)", "{{kind}}"),),
                stacked=True,
            ),
            Panel(
                "Preemptions by reason",
                (
                    Query(
                        "sum by (reason) (increase(gpupack_queue_preempted_total[5m]))",
                        "{{reason}}",
                    ),
                ),
                description="Preempted jobs, workers and pods within 5 minutes.",
            ),
            Panel(
                "Scheduling cycle duration",
                (
                    Query(
                        "histogram_quantile(0.5, sum by (le) "
                        "(rate(gpupack_queue_cycle_seconds_bucket[5m])))",
                        "p50",
                    ),
                    Query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(gpupack_queue_cycle_seconds_bucket[5m])))",
                        "p99",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Ended attempts by outcome",
                (
                    Query(
                        "sum by (outcome) (increase(gpupack_operator_attempts_total[5m]))",
                        "{{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Recovery time of jobs",
                (
                    Query(
                        "histogram_quantile(0.9, sum by (outcome, le) "
                        "(increase(gpupack_operator_recovery_seconds_bucket[1h])))",
                        "{{outcome}} p90",
                    ),
                ),
                unit="s",
            ),
        ),
    ),
    Row(
        "Quotas",
        (
            Panel(
                "Used GPUs by namespace",
                (
                    Query(
                        'gpupack:quota_gpus{amount="used",namespace=~"$namespace"}', "{{namespace}}"
                    ),
                ),
                stacked=True,
                width=12,
            ),
            Panel(
                "Nominal, used, borrowed and lent GPUs",
                (
                    Query(
                        'sum by (amount) (gpupack:quota_gpus{namespace=~"$namespace"})',
                        "{{amount}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Pending by namespace",
                (
                    Query(
                        "max by (namespace) (gpupack_queue_quota_jobs"
                        '{state="waiting",namespace=~"$namespace"})',
                        "{{namespace}}",
                    ),
                ),
                width=6,
            ),
        ),
    ),
    Row(
        "GPU health",
        (
            Panel(
                "GPUs by health",
                (Query("sum by (health) (gpupack_agent_gpu_health)", "{{health}}"),),
                stacked=True,
            ),
            Panel(
                "GPUs in quarantine or on probation",
                (Query("max by (phase) (gpupack_operator_gpus_kept_out)", "{{phase}}"),),
            ),
            Panel(
                "GPU nodes and agents",
                (
                    Query("count(max by (node) (gpupack_extender_node_gpus))", "GPU nodes"),
                    Query('sum(up{job="gpupack-agent"})', "agents up"),
                ),
            ),
            Panel(
                "Highest GPU temperature by node",
                (Query(f"max by (node) (DCGM_FI_DEV_GPU_TEMP{AGENT})", "{{node}}"),),
                unit="celsius",
            ),
            Panel(
                "Throttled GPUs by reason",
                (Query("sum by (reason) (gpupack_agent_gpu_throttled)", "{{reason}}"),),
            ),
            Panel(
                "Burn-ins per day by result",
                (
                    Query(
                        "sum by (result) (increase(gpupack_operator_burn_ins_total[1d]))",
                        "{{result}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Utilization",
        (
            Panel(
                "GPU utilization by node",
                (Query(f"avg by (node) (DCGM_FI_DEV_GPU_UTIL{AGENT})", "{{node}}"),),
                unit="percent",
                max_value=100.0,
            ),
            Panel(
                "Used part of granted GPU memory by pod",
                (
                    Query(
                        "topk(20, sum by (namespace, pod) "
                        '(gpupack_agent_pod_gpu_memory_used_bytes{namespace=~"$namespace"}) / '
                        "sum by (namespace, pod) (gpupack_agent_pod_gpu_memory_granted_bytes))",
                        "{{namespace}}/{{pod}}",
                    ),
                ),
                unit="percentunit",
            ),
            Panel(
                "Granted GPUs by namespace",
                (
                    Query(
                        "sum by (namespace) "
                        '(gpupack_agent_pod_gpu_granted_ratio{namespace=~"$namespace"})',
                        "{{namespace}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Container starts with GPUs by outcome",
                (
                    Query(
                        "sum by (outcome) (increase(gpupack_agent_container_starts_total[5m]))",
                        "{{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Exceeded shares by action",
                (
                    Query(
                        "sum by (action) (increase(gpupack_agent_share_overruns_total[5m]))",
                        "{{action}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Energy",
        (
            Panel(
                "GPU power by node",
                (Query(f"sum by (node) (DCGM_FI_DEV_POWER_USAGE{AGENT})", "{{node}}"),),
                unit="watt",
                stacked=True,
                width=12,
            ),
            Panel(
                "GPU power by namespace",
                (
                    Query(
                        'gpupack:namespace_gpu_power_watts:rate5m{namespace=~"$namespace"}',
                        "{{namespace}}",
                    ),
                ),
                unit="watt",
                stacked=True,
                width=12,
                description="Power of GPUs, divided among their pods by granted part.",
            ),
        ),
    ),
    Row(
        "Components",
        (
            Panel(
                "Extender: call duration p99",
                (Query("gpupack:extender_call_seconds:p99_rate5m", "{{verb}}"),),
                unit="s",
            ),
            Panel(
                "Extender: calls by outcome",
                (
                    Query(
                        "sum by (verb, outcome) (rate(gpupack_extender_calls_total[5m]))",
                        "{{verb}} {{outcome}}",
                    ),
                ),
                unit="reqps",
            ),
            Panel(
                "REST API: call duration p99",
                (Query("gpupack:api_call_seconds:p99_rate5m", "{{route}}"),),
                unit="s",
            ),
            Panel(
                "REST API: calls by status",
                (
                    Query("sum by (status) (rate(gpupack_api_calls_total[5m]))", "{{status}}"),
                    Query("sum(gpupack_api_calls_under_way)", "in progress, with streams"),
                ),
                unit="reqps",
            ),
            Panel(
                "Operator: reconciles and queue depth",
                (
                    Query(
                        "sum by (outcome) (rate(gpupack_operator_reconciles_total[5m]))",
                        "{{outcome}} per second",
                    ),
                    Query("max(gpupack_operator_work_queue_depth)", "queue depth"),
                ),
            ),
            Panel(
                "Operator: reconcile duration p99",
                (
                    Query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(gpupack_operator_reconcile_seconds_bucket[5m])))",
                        "p99",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Failed requests to the API server",
                (Query("gpupack:kube_errors:ratio_rate5m", "{{job}}"),),
                unit="percentunit",
            ),
            Panel(
                "Age of the oldest watch",
                (
                    Query("max by (job) (gpupack_extender_watch_age_seconds)", "{{job}}"),
                    Query("max by (job) (gpupack_api_watch_age_seconds)", "{{job}}"),
                ),
                unit="s",
            ),
            Panel(
                "Unreadable objects",
                (
                    Query(
                        "sum by (job, kind) (increase(gpupack_unreadable_objects_total[15m]))",
                        "{{job}} {{kind}}",
                    ),
                ),
            ),
            Panel(
                "Certificate expiry",
                (
                    Query(
                        "min by (job) (gpupack_certificate_expiry_timestamp_seconds) - time()",
                        "{{job}}",
                    ),
                ),
                kind="bargauge",
                unit="s",
            ),
            Panel(
                "Replicas up",
                (Query('sum by (job) (up{job=~"gpupack-.*"})', "{{job}}"),),
                kind="bargauge",
            ),
            Panel(
                "Leaders",
                (
                    Query("sum(gpupack_extender_deciding)", "scheduler"),
                    Query("sum(gpupack_operator_leading)", "operator"),
                ),
            ),
        ),
    ),
)


def render() -> str:
    """Return the text of the file."""
    built = render_dashboard(
        "gpupack",
        "gpupack",
        ROWS,
        description="GPUs, queue, quotas, health, utilization, energy, and gpupack's components.",
    )
    return json.dumps(built, indent=1) + "\n"


@click.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
def main(file: pathlib.Path) -> None:
    """Write the dashboard."""
    file.write_text(render())


if __name__ == "__main__":
    main()
