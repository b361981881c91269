# SPDX-License-Identifier: Apache-2.0
"""For each alert: series at which it fires, as promtool writes them, and others at which not.

A series is of one sample a minute. `at`: the minute at which it fires; `not_yet`: a minute at which
the same series make no alert yet, since it does not last for long enough. Each case runs once more
where its series begin some minutes later: `late_summary` where that makes another text.
"""

import dataclasses

AGENT = '{job="gpupack-agent",node="n1",pod="agent-1"}'
API = 'job="gpupack-api",pod="api-1"'
EXTENDER = 'job="gpupack-scheduler",pod="s-1"'
OPERATOR = 'job="gpupack-operator",pod="o-1"'


@dataclasses.dataclass(frozen=True)
class Case:
    """One alert, fired once; `description`: where it has labels in it."""

    alert: str
    fires: dict[str, str]
    quiet: dict[str, str]
    summary: str
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    at: int = 10
    not_yet: int = 1
    description: str = ""
    late_summary: str = ""


CASES = (
    Case(
        "GpupackSchedulerAway",
        fires={f"up{{{EXTENDER}}}": "1 1 0x20"},
        quiet={f"up{{{EXTENDER}}}": "0x20", 'up{job="gpupack-scheduler",pod="s-2"}': "1x20"},
        summary="No gpupack scheduler answers Prometheus.",
        not_yet=3,
    ),
    Case(
        "GpupackSchedulerNotDeciding",
        fires={
            f"gpupack_extender_deciding{{{EXTENDER}}}": "1 1 0x20",
            'gpupack_extender_deciding{job="gpupack-scheduler",pod="s-2"}': "0x22",
        },
        # A new leader decides in time.
        quiet={
            f"gpupack_extender_deciding{{{EXTENDER}}}": "1 1 0x20",
            'gpupack_extender_deciding{job="gpupack-scheduler",pod="s-2"}': "0 0 0 1x20",
        },
        summary="No gpupack scheduler places pods.",
        not_yet=3,
    ),
    Case(
        "GpupackLedgerStale",
        fires={f'gpupack_extender_watch_age_seconds{{{EXTENDER},kind="pods"}}': "0+60x20"},
        # Before the first list nothing has been heard, and readiness says so.
        quiet={
            f'gpupack_extender_watch_age_seconds{{{EXTENDER},kind="pods"}}': "60x20",
            f'gpupack_api_watch_age_seconds{{{API},kind="nodes"}}': " ".join(["+Inf"] * 20),
        },
        labels={"job": "gpupack-scheduler", "pod": "s-1", "kind": "pods"},
        summary="The pods watch of gpupack-scheduler has received nothing for 10m 0s.",
        not_yet=3,
    ),
    Case(
        "GpupackContradiction",
        fires={f"gpupack_extender_contradictions_total{{{EXTENDER}}}": "0 0 0 0 0 1x20"},
        quiet={f"gpupack_extender_contradictions_total{{{EXTENDER}}}": "1x20"},
        summary="The API shows a GPU that is claimed beyond its capacity.",
        not_yet=5,
    ),
    Case(
        "GpupackBindsFail",
        fires={
            f'gpupack_extender_calls_total{{{EXTENDER},verb="bind",outcome="bound"}}': "0+3x30",
            f'gpupack_extender_calls_total{{{EXTENDER},verb="bind",outcome="refused"}}': "0+1x30",
        },
        # One of a hundred, and a single one of a few.
        quiet={
            f'gpupack_extender_calls_total{{{EXTENDER},verb="bind",outcome="bound"}}': "0+99x30",
            f'gpupack_extender_calls_total{{{EXTENDER},verb="bind",outcome="refused"}}': "0+1x30",
        },
        summary="25% of the Bindings of GPU pods fail.",
        at=15,
        not_yet=5,
    ),
    Case(
        "GpupackFilterSlow",
        fires={
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="filter",le="1"}}': "0+90x30",
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="filter",le="2"}}': "0+100x30",
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="filter",le="+Inf"}}': (
                "0+100x30"
            ),
        },
        quiet={
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="filter",le="1"}}': "0+100x30",
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="filter",le="2"}}': "0+100x30",
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="filter",le="+Inf"}}': (
                "0+100x30"
            ),
            # A plan may take longer: kube-scheduler does not wait for it.
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="plan",le="5"}}': "0+100x30",
            f'gpupack_extender_call_seconds_bucket{{{EXTENDER},verb="plan",le="+Inf"}}': (
                "0+100x30"
            ),
        },
        labels={"verb": "filter"},
        summary="The 99th percentile of filter calls is 1.9s.",
        at=20,
        not_yet=8,
    ),
    Case(
        "GpupackFragmented",
        fires={
            f"gpupack_extender_fragmentation_ratio{{{EXTENDER}}}": "0.75x60",
            f'gpupack_operator_gpujobs{{{OPERATOR},phase="Pending",reason="TooFewFreeGpus"}}': (
                "2x60"
            ),
        },
        # No job waits for scattered GPUs.
        quiet={
            f"gpupack_extender_fragmentation_ratio{{{EXTENDER}}}": "0.75x60",
            f'gpupack_operator_gpujobs{{{OPERATOR},phase="Pending",reason="Reserved"}}': "2x60",
        },
        summary="75% of the free GPUs are on partly used nodes, and jobs wait for GPUs.",
        at=40,
        not_yet=29,
    ),
    Case(
        "GpupackNamespaceStarving",
        fires={f'gpupack_queue_starving_seconds{{{EXTENDER},namespace="team"}}': "0+60x30"},
        quiet={f'gpupack_queue_starving_seconds{{{EXTENDER},namespace="team"}}': "0+60x9 0x20"},
        labels={"namespace": "team"},
        summary="A job of team has waited for 20m 0s for GPUs within its nominal quota.",
        at=20,
        not_yet=11,
    ),
    Case(
        "GpupackPreemptionStuck",
        fires={f"gpupack_queue_preemptions_given_up_total{{{EXTENDER}}}": "0 0 1x30"},
        # Victims are within a grace period of an hour.
        quiet={
            f"gpupack_queue_preemptions_given_up_total{{{EXTENDER}}}": "3x30",
            f"gpupack_queue_preemption_oldest_seconds{{{EXTENDER}}}": "0+60x30",
        },
        summary="A preemption was given up, because its victims did not end.",
    ),
    Case(
        "GpupackPodsLinger",
        fires={f"gpupack_extender_lingering_pods{{{EXTENDER}}}": "2x30"},
        quiet={f"gpupack_extender_lingering_pods{{{EXTENDER}}}": "2x9 0x20"},
        summary="2 deleted pods still hold GPUs.",
        at=20,
        not_yet=14,
    ),
    Case(
        "GpupackOperatorAway",
        fires={f"gpupack_operator_leading{{{OPERATOR}}}": "1 1 0x20"},
        quiet={
            f"gpupack_operator_leading{{{OPERATOR}}}": "1 1 0x20",
            'gpupack_operator_leading{job="gpupack-operator",pod="o-2"}': "0 0 0 1x20",
        },
        summary="No gpupack operator holds the Lease.",
        not_yet=3,
    ),
    Case(
        "GpupackOperatorStuck",
        fires={f"gpupack_operator_work_queue_oldest_seconds{{{OPERATOR}}}": "0+60x20"},
        quiet={f"gpupack_operator_work_queue_oldest_seconds{{{OPERATOR}}}": "0+60x4 0x20"},
        summary="A GPUJob has waited for the operator for 10m 0s.",
        not_yet=6,
    ),
    Case(
        "GpupackOperatorFails",
        fires={
            f'gpupack_operator_reconciles_total{{{OPERATOR},outcome="internal_error"}}': "0+4x30"
        },
        quiet={
            f'gpupack_operator_reconciles_total{{{OPERATOR},outcome="internal_error"}}': (
                "0 0 3x30"
            ),
            f'gpupack_operator_reconciles_total{{{OPERATOR},outcome="api_error"}}': "0+4x30",
        },
        summary="The operator's reconciliation of GPUJobs fails with unexpected errors.",
        at=20,
        not_yet=9,
    ),
    Case(
        "GpupackAttemptsLost",
        fires={
            "gpupack_operator_attempts_total"
            f'{{{OPERATOR},outcome="Infrastructure",reason="PodLost"}}': "0 0 6x30"
        },
        quiet={
            "gpupack_operator_attempts_total"
            f'{{{OPERATOR},outcome="Infrastructure",reason="PodLost"}}': "0 0 4x30",
            "gpupack_operator_attempts_total"
            f'{{{OPERATOR},outcome="Failed",reason="WorkerFailed"}}': "0+9x30",
        },
        labels={"reason": "PodLost"},
        summary="6 attempts of GPUJobs were lost to PodLost within 15 minutes.",
        at=10,
        not_yet=2,
    ),
    Case(
        "GpupackBurnInsFail",
        fires={f'gpupack_operator_burn_ins_total{{{OPERATOR},result="failed"}}': "0 0 0 0 0 1x20"},
        quiet={
            f'gpupack_operator_burn_ins_total{{{OPERATOR},result="failed"}}': "1x20",
            f'gpupack_operator_burn_ins_total{{{OPERATOR},result="passed"}}': "0+1x20",
        },
        summary="Burn-ins of GPUs failed.",
        not_yet=5,
    ),
    Case(
        "GpupackGpusKeptOut",
        fires={f'gpupack_operator_gpus_kept_out{{{OPERATOR},phase="Quarantined"}}': "3x30"},
        quiet={
            f'gpupack_operator_gpus_kept_out{{{OPERATOR},phase="Quarantined"}}': "3x9 0x20",
            f'gpupack_operator_gpus_kept_out{{{OPERATOR},phase="Probation"}}': "3x30",
        },
        labels={"phase": "Quarantined"},
        summary="Phase Quarantined: 3 GPUs are not used normally.",
        at=20,
        not_yet=14,
    ),
    Case(
        "GpupackAgentMissing",
        fires={
            f'gpupack_extender_node_gpus{{{EXTENDER},node="n1"}}': "8x30",
            f'gpupack_extender_node_gpus{{{EXTENDER},node="n2"}}': "8x30",
            f"up{AGENT}": "0x30",
            'up{job="gpupack-agent",node="n2",pod="agent-2"}': "1x30",
        },
        # It is replaced; the node without GPUs needs none.
        quiet={
            f'gpupack_extender_node_gpus{{{EXTENDER},node="n1"}}': "8x30",
            f"up{AGENT}": "1 1 0 0 0 stale",
            'up{job="gpupack-agent",node="n1",pod="agent-new"}': "_ _ _ _ _ 1x30",
        },
        labels={"node": "n1"},
        summary="Node n1 has 8 GPUs and no agent.",
        not_yet=4,
    ),
    Case(
        "GpupackGpuFailed",
        fires={
            'gpupack_agent_gpu_health{node="n1",gpu="3",UUID="GPU-3",modelName="H200",'
            'health="Failed"}': "0 0 1x20",
        },
        quiet={
            'gpupack_agent_gpu_health{node="n1",gpu="3",UUID="GPU-3",modelName="H200",'
            'health="Failed"}': "0x20",
            'gpupack_agent_gpu_health{node="n1",gpu="3",UUID="GPU-3",modelName="H200",'
            'health="Cordoned"}': "1x20",
        },
        labels={"node": "n1", "gpu": "3", "UUID": "GPU-3", "modelName": "H200"},
        summary="GPU 3 of node n1 failed.",
        description="H200 GPU-3 gets no work; GPUNode says why.",
        not_yet=2,
    ),
    Case(
        "GpupackGpusUnseen",
        fires={f"gpupack_agent_gpus_unseen_seconds{AGENT}": "0+60x20"},
        quiet={f"gpupack_agent_gpus_unseen_seconds{AGENT}": "0+60x2 0x20"},
        labels={"node": "n1"},
        summary="The driver of node n1 has not reported its GPUs for 10m 0s.",
        not_yet=2,
    ),
    Case(
        "GpupackGpuNodeStale",
        fires={f"gpupack_agent_gpunode_age_seconds{AGENT}": "0+60x20"},
        # An agent that starts has not written yet.
        quiet={f"gpupack_agent_gpunode_age_seconds{AGENT}": "+Inf +Inf 30x20"},
        labels={"node": "n1"},
        summary="GPUNode n1 has not been updated for 10m 0s.",
        not_yet=4,
    ),
    Case(
        "GpupackDoubleHolderRefused",
        fires={
            'gpupack_agent_container_starts_total{node="n1",outcome="held"}': "0 0 1 2 3 4x20",
        },
        quiet={
            'gpupack_agent_container_starts_total{node="n1",outcome="held"}': "0 0 1x20",
            'gpupack_agent_container_starts_total{node="n1",outcome="refused"}': "0+1x20",
        },
        labels={"node": "n1"},
        summary="Containers on node n1 are refused GPUs that other pods hold.",
        at=8,
        not_yet=2,
    ),
    Case(
        "GpupackSharesOverrun",
        fires={'gpupack_agent_share_overruns_total{node="n1",action="ended"}': "0+1x30"},
        quiet={
            'gpupack_agent_share_overruns_total{node="n1",action="ended"}': "0 0 1 2x30",
            'gpupack_agent_share_overruns_total{node="n1",action="reported"}': "0+1x30",
        },
        labels={"node": "n1"},
        summary="Programs on node n1 exceed their shares repeatedly.",
        not_yet=3,
    ),
    Case(
        "GpupackPartDown",
        fires={'up{job="gpupack-api",instance="10.0.0.1:8444"}': "1 0x20"},
        quiet={
            'up{job="gpupack-api",instance="10.0.0.1:8444"}': "1 0 0 0 1x20",
            'up{job="another"}': "0x20",
        },
        labels={"job": "gpupack-api", "instance": "10.0.0.1:8444"},
        summary="gpupack-api at 10.0.0.1:8444 does not answer Prometheus.",
        not_yet=5,
    ),
    Case(
        "GpupackKubeApiErrors",
        fires={
            f'gpupack_kube_requests_total{{{OPERATOR},answer="2xx"}}': "0+9x30",
            f'gpupack_kube_requests_total{{{OPERATOR},answer="none"}}': "0+1x30",
        },
        # Conflicts are answers, too.
        quiet={
            f'gpupack_kube_requests_total{{{OPERATOR},answer="2xx"}}': "0+9x30",
            f'gpupack_kube_requests_total{{{OPERATOR},answer="4xx"}}': "0+9x30",
            f'gpupack_kube_requests_total{{{OPERATOR},answer="5xx"}}': "0x30",
        },
        labels={"job": "gpupack-operator"},
        summary="10% of the requests of gpupack-operator to the API server fail.",
        at=12,
        not_yet=5,
    ),
    Case(
        "GpupackApiErrors",
        fires={
            f'gpupack_api_calls_total{{{API},route="/api/v1/gpu/jobs",status="200"}}': "0+9x30",
            f'gpupack_api_calls_total{{{API},route="/api/v1/gpu/jobs",status="500"}}': "0+1x30",
        },
        # Callers' own mistakes, and probes while it starts.
        quiet={
            f'gpupack_api_calls_total{{{API},route="/api/v1/gpu/jobs",status="200"}}': "0+9x30",
            f'gpupack_api_calls_total{{{API},route="/api/v1/gpu/jobs",status="403"}}': "0+9x30",
            f'gpupack_api_calls_total{{{API},route="/api/v1/gpu/health/ready",status="503"}}': (
                "0+30x30"
            ),
        },
        summary="10% of the calls of the REST API fail.",
        at=12,
        not_yet=5,
    ),
    Case(
        "GpupackApiSlow",
        fires={
            f'gpupack_api_call_seconds_bucket{{{API},route="/api/v1/gpu/jobs",le="2"}}': "0+90x30",
            f'gpupack_api_call_seconds_bucket{{{API},route="/api/v1/gpu/jobs",le="5"}}': "0+100x30",
            f'gpupack_api_call_seconds_bucket{{{API},route="/api/v1/gpu/jobs",le="+Inf"}}': (
                "0+100x30"
            ),
        },
        # It waits for GPUs.
        quiet={
            f'gpupack_api_call_seconds_bucket{{{API},route="/api/v1/gpu/allocate",le="2"}}': (
                "0+10x30"
            ),
            f'gpupack_api_call_seconds_bucket{{{API},route="/api/v1/gpu/allocate",le="15"}}': (
                "0+100x30"
            ),
            f'gpupack_api_call_seconds_bucket{{{API},route="/api/v1/gpu/allocate",le="+Inf"}}': (
                "0+100x30"
            ),
        },
        labels={"route": "/api/v1/gpu/jobs"},
        summary="The 99th percentile of calls to /api/v1/gpu/jobs is 4.7s.",
        at=20,
        not_yet=8,
    ),
    Case(
        "GpupackObjectsUnreadable",
        fires={f'gpupack_unreadable_objects_total{{{OPERATOR},kind="pods"}}': "0 0 1x30"},
        quiet={f'gpupack_unreadable_objects_total{{{OPERATOR},kind="pods"}}': "1x30"},
        labels={"job": "gpupack-operator", "kind": "pods"},
        summary="gpupack-operator cannot read some pods.",
        not_yet=5,
    ),
    Case(
        "GpupackCertificateExpires",
        # Minute 90 is 5,400 s after the epoch.
        fires={f"gpupack_certificate_expiry_timestamp_seconds{{{API}}}": "869400x120"},
        quiet={f"gpupack_certificate_expiry_timestamp_seconds{{{API}}}": "2000000x120"},
        labels={"job": "gpupack-api"},
        summary="The certificate of gpupack-api expires in 10d 0h 0m 0s.",
        late_summary="The certificate of gpupack-api expires in 9d 23h 56m 0s.",
        at=90,
        not_yet=59,
    ),
)
