# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_operator.plan_line import FIRST_LOOK_SECONDS
from gpupack_operator.planned_spec import MAX_STORED_BYTES
from gpupack_operator.pod_admission import (
    ALLOWED_SECONDS,
    DOUBTFUL_SECONDS,
    DRY_RUN_SECONDS,
    DRY_RUNS_BURST,
    LIMITED_SECONDS,
    MAX_ALLOWED_SECONDS,
    MAX_KEPT_YES,
    UNKNOWN,
    AdmittedPod,
    PodAdmission,
)

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "worker"}]}}
QUOTA = (403, "Forbidden", 'pods "train-1-0" is forbidden: exceeded quota: small')
POLICY = (422, "Invalid", 'pods "train-1-0" is forbidden: ValidatingAdmissionPolicy denied it')
WEBHOOK = (
    422,
    "Invalid",
    'admission webhook "x" denied the request: Pod "train-1-0" is invalid: no label team',
)
WEBHOOK_403 = (403, "Forbidden", WEBHOOK[2])
UNDECODED = (
    'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string into Go struct '
    "field PodSpec.spec.affinity of type v1.Affinity"
)
DECODER = (400, "BadRequest", UNDECODED)
WEBHOOK_400 = (400, "BadRequest", f'admission webhook "x" denied the request: {UNDECODED}')
WRONG = (422, "Invalid", 'Pod "train-1-0" is invalid: spec.volumes[0]: Required value')
NO_DRY_RUNS = (400, "BadRequest", 'admission webhook "x" does not support dry run')
TAKEN = (409, "AlreadyExists", 'pods "train-1-0" already exists')


class Admission:
    """One GPUJob whose pods are reviewed; `now` is the clock."""

    def __init__(self, server, build):
        self.server = server
        self.job = build.gpujob()
        self.now = 0.0
        self.admission = PodAdmission(server.api, clock=lambda: self.now)

    async def ask(self, answer=None, **asked):
        """The refusal, where the API server would answer so."""
        found = await self.review(answer, **asked)
        return None if isinstance(found, AdmittedPod) else found

    async def review(self, answer=None, *, attempt=1, in_doubt=False, job=None, kind="a"):
        """The pod, or the refusal."""
        self.server.refuse = {"pods": answer} if answer else {}
        self.server.dry_runs.clear()
        return await self.admission.review(
            job or self.job, TEMPLATE, kind=kind, attempt=attempt, in_doubt=in_doubt
        )

    def admit(self, **spec):
        """Have admission make this of the pod's spec."""
        self.server.admit = lambda pod: pod | {"spec": pod["spec"] | spec}

    def other(self, **changes):
        """Another GPUJob."""
        meta = msgspec.structs.replace(self.job.metadata, name="other", uid="other", **changes)
        return msgspec.structs.replace(self.job, metadata=meta)


@pytest.fixture
def reviews(server, build):
    return Admission(server, build)


async def test_the_first_pod_is_tried_and_nothing_is_written(reviews):
    assert await reviews.ask() is None
    (pod,) = reviews.server.dry_runs
    assert (pod["metadata"]["name"], pod["metadata"]["labels"]) == ("train-1-0", {"a": "b"})
    assert reviews.server.writes == []


@pytest.mark.parametrize(
    "answer",
    [QUOTA, POLICY, WEBHOOK, WEBHOOK_403, WEBHOOK_400],
    ids=["quota", "policy", "webhook", "webhook's 403", "webhook's 400"],
)
async def test_what_forbids_the_pods_is_told_and_may_be_lifted(reviews, answer):
    refusal = await reviews.ask(answer)
    assert (refusal.reason, refusal.for_good) == ("CreationForbidden", False)
    assert answer[2] in refusal.message
    reviews.now = refusal.retry_seconds
    assert await reviews.ask() is None


@pytest.mark.parametrize("answer", [WRONG, DECODER], ids=["invalid", "cannot be decoded"])
async def test_a_pod_that_is_wrong_is_refused_for_good(reviews, answer):
    refusal = await reviews.ask(answer)
    assert (refusal.reason, refusal.for_good) == ("InvalidTemplate", True)
    assert refusal.message == answer[2]


@pytest.mark.parametrize("answer", [NO_DRY_RUNS, TAKEN], ids=["no dry runs", "name taken"])
async def test_an_answer_that_says_nothing_of_the_pods_holds_nobody_up(reviews, answer):
    assert await reviews.review(answer) == UNKNOWN


async def test_the_answer_is_the_pod_as_admission_made_it(reviews):
    reviews.admit(
        containers=[{"name": "worker", "image": "x", "resources": {"requests": {"cpu": "1k"}}}],
        overhead={"cpu": "250m"},
        nodeSelector={"pool": "gold"},
        nodeName="",
    )
    found = await reviews.review()
    assert msgspec.json.decode(found.spec) == {
        "containers": [{"name": "worker", "resources": {"requests": {"cpu": "1k"}}}],
        "overhead": {"cpu": "250m"},
        "nodeSelector": {"pool": "gold"},
    }


async def test_another_answer_of_admission_is_known_when_a_waiting_job_is_next_looked_at(reviews):
    before = await reviews.review()
    reviews.admit(overhead={"cpu": "1"})
    reviews.now = ALLOWED_SECONDS - 1
    assert await reviews.review() == before
    reviews.now = ALLOWED_SECONDS
    assert b"overhead" in (await reviews.review()).spec
    assert ALLOWED_SECONDS <= FIRST_LOOK_SECONDS


async def test_a_yes_is_good_for_longer_each_time_that_the_answer_is_the_same(reviews):
    seconds = []
    for _ in range(4):
        await reviews.review()
        asked_at = reviews.now
        while not reviews.server.dry_runs or reviews.now == asked_at:
            reviews.now += 1
            await reviews.review()
        seconds.append(reviews.now - asked_at)
    assert seconds == [15, 30, 60, 60]
    reviews.admit(overhead={"cpu": "1"})
    reviews.now += MAX_ALLOWED_SECONDS
    await reviews.review()
    reviews.now += ALLOWED_SECONDS
    await reviews.review()
    assert reviews.server.dry_runs


async def test_a_namespace_whose_pods_all_differ_waits_and_the_others_do_not(reviews):
    for number in range(DRY_RUNS_BURST):
        assert await reviews.ask(kind=str(number)) is None
    refusal = await reviews.ask(kind="more")
    assert (refusal.reason, refusal.retry_seconds) == ("DryRunLimitExceeded", LIMITED_SECONDS)
    assert reviews.server.dry_runs == []
    assert await reviews.ask(job=reviews.other(namespace="rivals"), kind="more") is None
    reviews.now += DRY_RUN_SECONDS
    assert await reviews.ask(kind="more") is None


async def test_past_its_dry_runs_a_namespace_is_answered_what_was_last_known(reviews):
    """And so no status is written again and again."""
    before = await reviews.review()
    refusal = await reviews.ask(QUOTA, kind="b", job=reviews.other())
    reviews.now = ALLOWED_SECONDS
    for number in range(DRY_RUNS_BURST):
        await reviews.ask(kind=f"c{number}")
    assert await reviews.review() == before
    again = await reviews.ask(kind="b", job=reviews.other())
    assert (again.reason, again.message) == (refusal.reason, refusal.message)
    assert reviews.server.dry_runs == []


async def test_a_pod_with_much_to_say_is_tried_each_time_and_not_kept(reviews):
    reviews.admit(nodeSelector={"pool": "x" * MAX_STORED_BYTES})
    for _ in range(2):
        assert len((await reviews.review()).spec) > MAX_STORED_BYTES
        assert len(reviews.server.dry_runs) == 1
    assert len(reviews.admission._allowed) == 0


async def test_no_more_than_so_many_answers_are_kept(reviews):
    for number in range(MAX_KEPT_YES + 10):
        await reviews.review(kind=str(number))
        reviews.now += DRY_RUN_SECONDS / 100
        reviews.admission._dry_runs.put_back(reviews.job.metadata.namespace)
    assert len(reviews.admission._allowed) == MAX_KEPT_YES


async def test_a_no_is_asked_about_again_later_each_time_with_the_same_text(reviews):
    refusals = []
    for _ in range(6):
        refusals.append(await reviews.ask(QUOTA))
        reviews.now += refusals[-1].retry_seconds
    assert [found.retry_seconds for found in refusals] == [5, 10, 20, 40, 60, 60]
    assert len({found.message for found in refusals}) == 1


async def test_neither_a_yes_nor_a_no_is_asked_for_twice_while_it_is_good(reviews):
    assert await reviews.ask(QUOTA) is not None
    assert await reviews.ask() is not None
    assert await reviews.ask(attempt=2) is None
    reviews.now = ALLOWED_SECONDS - 1
    assert await reviews.ask(QUOTA, attempt=2) is None
    reviews.now = ALLOWED_SECONDS
    assert await reviews.ask(QUOTA, attempt=2) is not None


async def test_jobs_whose_pods_are_alike_cost_one_dry_run(reviews):
    await reviews.ask()
    assert await reviews.ask(QUOTA, job=reviews.other()) is None
    assert await reviews.ask(QUOTA, job=reviews.other(), kind="b") is not None
    assert await reviews.ask(QUOTA, job=reviews.other(namespace="rivals")) is not None


async def test_a_yes_from_before_pods_of_its_namespace_were_made_holds_no_more(reviews):
    """They count against a quota, of which nobody is in doubt once all of them exist."""
    await reviews.ask()
    reviews.admission.begins("rivals")
    reviews.now = ALLOWED_SECONDS / 3
    assert await reviews.ask(QUOTA) is None
    reviews.admission.begins(reviews.job.metadata.namespace)
    reviews.now = ALLOWED_SECONDS / 2
    assert await reviews.ask(QUOTA, job=reviews.other()) is not None


async def test_a_yes_that_was_given_in_doubt_is_good_for_a_moment_alone(reviews):
    """It may have come before the pods that were being made."""
    await reviews.ask(in_doubt=True)
    reviews.now = DOUBTFUL_SECONDS
    assert await reviews.ask(QUOTA) is not None


async def test_where_one_is_refused_what_others_were_told_holds_no_more(reviews):
    await reviews.ask()
    reviews.now = DOUBTFUL_SECONDS
    assert await reviews.ask(QUOTA, job=reviews.other(), in_doubt=True) is not None
    assert await reviews.ask(QUOTA) is not None


async def test_where_a_yes_is_in_doubt_it_is_good_for_a_moment_and_a_no_as_long_as_ever(reviews):
    await reviews.ask()
    assert await reviews.ask(QUOTA, in_doubt=True) is None
    reviews.now = DOUBTFUL_SECONDS
    assert await reviews.ask(QUOTA, in_doubt=True) is not None
    assert await reviews.ask(in_doubt=True) is not None
    assert reviews.server.dry_runs == []


async def test_reviews_of_jobs_that_are_gone_are_forgotten(reviews):
    for attempt in range(1, 50):
        await reviews.ask(QUOTA, attempt=attempt)
        await reviews.ask(attempt=attempt, kind=str(attempt), job=reviews.other())
        reviews.now += 60
    assert len(reviews.admission._refused) + len(reviews.admission._allowed) < 20
