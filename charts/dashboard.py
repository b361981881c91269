# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""The Grafana dashboard: `python charts/dashboard.py FILE` writes it."""

import json
import pathlib
from typing import Final

import click
from panels import Panel, Query, Row, dashboard

AGENT: Final = '{job="gpupack-agent"}'
"""NVIDIA's exporter has series of the same names: together they would count each GPU twice."""

ROWS: Final = (
    Row(
        "What users feel",
        (
            Panel(
                "GPUs given out",
                (Query("gpupack:gpus_given_out:ratio"),),
                kind="stat",
                unit="percentunit",
                width=4,
                height=5,
                most=1.0,
            ),
            Panel(
                "Free GPUs",
                (Query('max(gpupack_extender_devices{state="free"})'),),
                kind="stat",
                width=4,
                height=5,
            ),
            Panel(
                "Jobs that run",
                (Query('sum(gpupack_operator_gpujobs{phase="Running"})'),),
                kind="stat",
                width=4,
                height=5,
            ),
            Panel(
                "Jobs and pods that wait",
                (Query("sum(max by (kind) (gpupack_queue_waiting))"),),
                kind="stat",
                width=4,
                height=5,
            ),
            Panel(
                "Longest wait within a promise",
                (Query("max(gpupack_queue_starving_seconds) or vector(0)"),),
                kind="stat",
                unit="s",
                description="Of a job whose namespace was promised what it asks for.",
                width=4,
                height=5,
            ),
            Panel(
                "GPUs kept out or failed",
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
                "GPUs given out, by model",
                (
                    Query('gpupack:gpus{amount="given_out"}', "{{model}} given out"),
                    Query('gpupack:gpus{amount="capacity"}', "{{model}}"),
                ),
            ),
            Panel(
                "Fragmentation",
                (Query("max(gpupack_extender_fragmentation_ratio)", "fragmentation"),),
                unit="percentunit",
                most=1.0,
                description="Part of the free GPUs that lie in no free block as large as a node.",
            ),
        ),
    ),
    Row(
        "Queue",
        (
            Panel(
                "GPUJobs that wait, by reason",
                (
                    Query(
                        'sum by (reason) (gpupack_operator_gpujobs{phase="Pending"})', "{{reason}}"
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Who waits",
                (Query("max by (kind) (gpupack_queue_waiting)", "{{kind}}"),),
                stacked=True,
            ),
            Panel(
                "Told to end for others",
                (
                    Query(
                        "sum by (reason) (increase(gpupack_queue_preempted_total[5m]))",
                        "{{reason}}",
                    ),
                ),
                description="Jobs, workers and pods within 5 minutes, by the right of the others.",
            ),
            Panel(
                "A decision of the queue takes",
                (
                    Query(
                        "histogram_quantile(0.5, sum by (le) "
                        "(rate(gpupack_queue_cycle_seconds_bucket[5m])))",
                        "median",
                    ),
                    Query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(gpupack_queue_cycle_seconds_bucket[5m])))",
                        "99 of 100",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Attempts that ended, by outcome",
                (
                    Query(
                        "sum by (outcome) (increase(gpupack_operator_attempts_total[5m]))",
                        "{{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Until a lost job runs again",
                (
                    Query(
                        "histogram_quantile(0.9, sum by (outcome, le) "
                        "(increase(gpupack_operator_recovery_seconds_bucket[1h])))",
                        "{{outcome}}, 9 of 10",
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
                "GPUs used, by namespace",
                (
                    Query(
                        'gpupack:quota_gpus{amount="used",namespace=~"$namespace"}', "{{namespace}}"
                    ),
                ),
                stacked=True,
                width=12,
            ),
            Panel(
                "GPUs promised, used, borrowed and lent",
                (
                    Query(
                        'sum by (amount) (gpupack:quota_gpus{namespace=~"$namespace"})',
                        "{{amount}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Waiting, by namespace",
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
        "Health of GPUs",
        (
            Panel(
                "GPUs by health",
                (Query("sum by (health) (gpupack_agent_gpu_health)", "{{health}}"),),
                stacked=True,
            ),
            Panel(
                "GPUs that are not used as others are",
                (Query("max by (phase) (gpupack_operator_gpus_kept_out)", "{{phase}}"),),
            ),
            Panel(
                "Nodes with GPUs, and their agents",
                (
                    Query("count(max by (node) (gpupack_extender_node_gpus))", "nodes with GPUs"),
                    Query('sum(up{job="gpupack-agent"})', "agents that answer"),
                ),
            ),
            Panel(
                "Temperature, the hottest of each node",
                (Query(f"max by (node) (DCGM_FI_DEV_GPU_TEMP{AGENT})", "{{node}}"),),
                unit="celsius",
            ),
            Panel(
                "Clocks held down, by reason",
                (Query("sum by (reason) (gpupack_agent_gpu_throttled)", "{{reason}}"),),
            ),
            Panel(
                "Burn-ins within a day",
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
        "Use",
        (
            Panel(
                "GPUs busy, of those that the driver tells of",
                (Query(f"avg by (node) (DCGM_FI_DEV_GPU_UTIL{AGENT})", "{{node}}"),),
                unit="percent",
                most=100.0,
            ),
            Panel(
                "Memory used of what was granted, by pod",
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
                "GPUs granted, by namespace",
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
                "Container starts with GPUs",
                (
                    Query(
                        "sum by (outcome) (increase(gpupack_agent_container_starts_total[5m]))",
                        "{{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Shares exceeded",
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
                "Power of all GPUs",
                (Query(f"sum by (node) (DCGM_FI_DEV_POWER_USAGE{AGENT})", "{{node}}"),),
                unit="watt",
                stacked=True,
                width=12,
            ),
            Panel(
                "Power by namespace",
                (
                    Query(
                        'gpupack:namespace_gpu_power_watts:rate5m{namespace=~"$namespace"}',
                        "{{namespace}}",
                    ),
                ),
                unit="watt",
                stacked=True,
                width=12,
                description="What the GPUs of its pods took, by the pods' parts of them.",
            ),
        ),
    ),
    Row(
        "Parts",
        (
            Panel(
                "Extender: 99 of 100 calls within",
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
                "REST API: 99 of 100 calls within",
                (Query("gpupack:api_call_seconds:p99_rate5m", "{{route}}"),),
                unit="s",
            ),
            Panel(
                "REST API: calls by status",
                (
                    Query("sum by (status) (rate(gpupack_api_calls_total[5m]))", "{{status}}"),
                    Query("sum(gpupack_api_calls_under_way)", "under way, streams too"),
                ),
                unit="reqps",
            ),
            Panel(
                "Operator: passes, and who waits for one",
                (
                    Query(
                        "sum by (outcome) (rate(gpupack_operator_reconciles_total[5m]))",
                        "{{outcome}} a second",
                    ),
                    Query("max(gpupack_operator_work_queue_depth)", "waiting"),
                ),
            ),
            Panel(
                "Operator: 99 of 100 passes within",
                (
                    Query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(gpupack_operator_reconcile_seconds_bucket[5m])))",
                        "a pass",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Requests to the API server that fail",
                (Query("gpupack:kube_errors:ratio_rate5m", "{{job}}"),),
                unit="percentunit",
            ),
            Panel(
                "Age of watches, the oldest",
                (
                    Query("max by (job) (gpupack_extender_watch_age_seconds)", "{{job}}"),
                    Query("max by (job) (gpupack_api_watch_age_seconds)", "{{job}}"),
                ),
                unit="s",
            ),
            Panel(
                "Objects that cannot be read",
                (
                    Query(
                        "sum by (job, kind) (increase(gpupack_unreadable_objects_total[15m]))",
                        "{{job}} {{kind}}",
                    ),
                ),
            ),
            Panel(
                "Certificates end in",
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
                "Parts that answer",
                (Query('sum by (job) (up{job=~"gpupack-.*"})', "{{job}}"),),
                kind="bargauge",
            ),
            Panel(
                "Who leads",
                (
                    Query("sum(gpupack_extender_deciding)", "scheduler"),
                    Query("sum(gpupack_operator_leading)", "operator"),
                ),
            ),
        ),
    ),
)


def written() -> str:
    """The file's text."""
    built = dashboard(
        "gpupack",
        "gpupack",
        ROWS,
        description="GPUs, the queue, quotas, health, use and energy; and the parts themselves.",
    )
    return json.dumps(built, indent=1) + "\n"


@click.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
def main(file: pathlib.Path) -> None:
    """Write the dashboard."""
    file.write_text(written())


if __name__ == "__main__":
    main()
