# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from rest_answers import explanation
from rest_answers import outcome as answer_of

from gpupack_cli.commands.what_if import format_answer
from gpupack_cli.explanation import job_lines, pod_lines
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.kinds import GpuJob
from gpupack_restapi.jobs import HeldDevice, WorkerView
from gpupack_restapi.questions import JobRef

FOUR_MINUTES = "2026-11-25T10:00:00Z to 2026-11-25T10:04:00Z"


def job(**status):
    return msgspec.convert(
        {"metadata": {"namespace": "team", "name": "train"}, "status": status}, GpuJob
    )


def test_a_pending_job_shows_reason_position_and_advice():
    more = explanation(
        position=3,
        waiting=7,
        ahead=[JobRef("team", f"j{i}") for i in range(7)],
        ahead_hidden=2,
        estimated_wait_seconds=600.0,
        would_help=["4 GPUs less per worker"],
    )
    waits = job(phase="Pending", reason="TooFewFreeGpus", message="16 GPUs are missing")
    assert list(job_lines(waits, more)) == [
        "team/train is Pending: TooFewFreeGpus",
        "  16 GPUs are missing",
        "  Number 3 of 7 that wait in the cluster.",
        "  Ahead of it: team/j0, team/j1, team/j2, team/j3, team/j4 and 2 more",
        "  Expected to start within 10m",
        "  2 of other namespaces are ahead of it",
        "What would help:",
        "  - 4 GPUs less per worker",
    ]


def test_the_queues_reason_has_precedence_over_the_status():
    more = explanation(reason="Unsatisfiable", message="it can never start", position=2, waiting=2)
    assert list(job_lines(job(phase="Pending", reason="TooFewFreeGpus", message="old"), more)) == [
        "team/train is Pending: Unsatisfiable",
        "  it can never start",
        "  Number 2 of 2 that wait in the cluster.",
    ]


@pytest.mark.parametrize(("state", "shown"), [("", 1), ("Requested", 2)])
def test_a_node_request_is_shown_only_where_there_is_one(state, shown):
    request = {"lacksGpusSince": "2026-11-25T10:00:00Z", "state": state}
    lines = list(job_lines(job(phase="Pending", nodesRequest=request), None))
    assert len(lines) == shown


@pytest.mark.parametrize(
    ("indices", "shown"),
    [((1,), "GPU index 1"), ((0, 1), "GPU indices 0, 1"), ((0, None), "GPU indices 0, GPU-None")],
)
def test_what_if_labels_gpu_indices_and_a_gpu_without_one_has_its_uuid(indices, shown):
    devices = [HeldDevice(index, f"GPU-{index}", 100, 80_000) for index in indices]
    answer = answer_of("Starts", workers=[WorkerView(0, "a", devices)])
    assert format_answer(answer)[1] == f"  worker 0: a, {shown}"


def test_a_suspended_job_names_the_command_that_resumes_it():
    suspended = msgspec.structs.replace(
        job(phase="Suspended", reason="Suspended"), spec=GpuJobSpec(suspend=True)
    )
    assert list(job_lines(suspended, None)) == [
        "team/train is Suspended",
        "  Resume it: gpupack resume -n team train",
    ]


def test_without_the_rest_api_the_status_is_shown():
    assert list(job_lines(job(phase="Pending", reason="TooFewFreeGpus"), None)) == [
        "team/train is Pending: TooFewFreeGpus"
    ]


def test_a_finished_job_shows_its_attempts():
    attempts = [
        {
            "number": 1,
            "startedAt": "2026-11-25T10:00:00Z",
            "finishedAt": "2026-11-25T10:04:00Z",
            "outcome": "Infrastructure",
            "reason": "NodeLost",
            "message": "node a is gone",
            "nodes": "a",
        },
        {"number": 2, "startedAt": "2026-11-25T10:05:00Z", "nodes": "b"},
    ]
    assert list(
        job_lines(
            job(phase="Running", reason="AllWorkersRunning", attempts=attempts),
            explanation(position=1),
        )
    ) == [
        "team/train is Running: AllWorkersRunning",
        "Attempts:",
        f"  1: Infrastructure, {FOUR_MINUTES} (4m), on a, NodeLost: node a is gone",
        "  2: running, since 2026-11-25T10:05:00Z, on b",
    ]


def test_escape_sequences_in_a_status_are_removed():
    evil = "\x1b]0;owned\x07\x1b[2Jhidden"
    waits = job(phase="Pending", reason=evil, message=evil)
    more = explanation(ahead=[JobRef(evil, evil)], would_help=[evil])
    assert "\x1b" not in "\n".join(job_lines(waits, more))
    answer = answer_of("Waits", reason=evil, message=evil, preempts=[JobRef(evil, evil)])
    assert "\x1b" not in "\n".join(format_answer(answer))


@pytest.mark.parametrize(
    ("outcome", "begins"),
    [
        ("Starts", "It would start now"),
        ("Waits", "It would wait: R"),
        ("Never", "It would never run: R"),
    ],
)
def test_what_if_shows_the_outcome_first(outcome, begins):
    reason = "" if outcome == "Starts" else "R"
    assert format_answer(answer_of(outcome, reason=reason))[0] == begins


def test_what_if_shows_placement_and_victims():
    workers = (
        WorkerView(0, "a", (HeldDevice(3, "GPU-3", 40, 1024),)),
        WorkerView(1, "b", ()),
    )
    small = JobRef("team", "small")
    answer = answer_of("Starts", workers=workers, preempts=(small,), preempts_hidden=1)
    assert format_answer(answer) == [
        "It would start now",
        "  worker 0: a, GPU index 3 (40%, 1 GiB)",
        "  worker 1: b",
        "  Would preempt: team/small, 1 of another namespace",
    ]


def test_a_pending_pod_shows_reason_and_position():
    more = explanation(
        reason="DoesNotFit",
        message="no room",
        position=2,
        waiting=3,
        ahead=[JobRef("team", "web", "Pod")],
        would_help=["1 GPU less"],
    )
    assert list(pod_lines("team/notebook", "old", more)) == [
        "pod team/notebook waits: DoesNotFit",
        "  no room",
        "  Number 2 of 3 that wait in the cluster.",
        "  Ahead of it: team/pod/web",
        "What would help:",
        "  - 1 GPU less",
    ]
    assert list(pod_lines("team/notebook", "its condition", None)) == [
        "pod team/notebook waits",
        "  its condition",
    ]


def test_singular_and_plural_are_used_correctly():
    more = explanation(position=1, waiting=1, ahead_hidden=1)
    assert list(job_lines(job(phase="Pending"), more))[1:] == [
        "  Number 1 of 1 that waits in the cluster.",
        "  1 of another namespace is ahead of it",
    ]


def test_an_attempt_without_a_node_names_none():
    attempts = [{"number": 1, "startedAt": "2026-11-25T10:00:00Z", "reason": "Pulling"}]
    shown = list(job_lines(job(phase="Running", attempts=attempts), None))
    assert shown[-1] == "  1: running, since 2026-11-25T10:00:00Z, Pulling"


def test_an_answer_without_a_reason_has_no_colon():
    assert format_answer(answer_of("Waits", message="2 GPUs are missing")) == [
        "It would wait",
        "  2 GPUs are missing",
    ]
