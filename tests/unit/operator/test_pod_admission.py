# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_operator.manifests.worker_kind import WorkerKind
from gpupack_operator.planned_spec import MAX_STORED_BYTES
from gpupack_operator.pod_admission import (
    ALLOWED_SECONDS,
    DOUBTFUL_SECONDS,
    DRY_RUN_SECONDS,
    DRY_RUNS_BURST,
    LIMITED_SECONDS,
    MAX_ALLOWED_SECONDS,
    MAX_APPROVALS,
    UNKNOWN,
    AdmittedPod,
    PodAdmission,
)
from gpupack_operator.waiting_jobs import FIRST_REPEAT_SECONDS

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

    async def ask(self, answer=None, **options):
        """Return the refusal if the API server gives this answer."""
        found = await self.review(answer, **options)
        return None if isinstance(found, AdmittedPod) else found

    async def review(self, answer=None, *, attempt=1, is_quota_uncertain=False, job=None, kind="a"):
        """Return the pod, or the refusal."""
        self.server.refuse = {"pods": answer} if answer else {}
        self.server.dry_runs.clear()
        return await self.admission.review(
            WorkerKind(job or self.job, {}),
            TEMPLATE,
            kind=kind,
            attempt=attempt,
            is_quota_uncertain=is_quota_uncertain,
        )

    def admit(self, **spec):
        """Let admission change these fields of the pod's spec."""
        self.server.admit = lambda pod: pod | {"spec": pod["spec"] | spec}

    def other(self, **changes):
        """Another GPUJob."""
        meta = msgspec.structs.replace(self.job.metadata, name="other", uid="other", **changes)
        return msgspec.structs.replace(self.job, metadata=meta)


@pytest.fixture
def reviews(server, build):
    return Admission(server, build)


async def test_a_dry_run_of_the_first_pod_writes_nothing(reviews):
    assert await reviews.ask() is None
    (pod,) = reviews.server.dry_runs
    assert (pod["metadata"]["name"], pod["metadata"]["labels"]) == ("train-1-0", {"a": "b"})
    assert reviews.server.writes == []


@pytest.mark.parametrize(
    "answer",
    [QUOTA, POLICY, WEBHOOK, WEBHOOK_403, WEBHOOK_400],
    ids=["quota", "policy", "webhook", "webhook's 403", "webhook's 400"],
)
async def test_a_refusal_is_reported_and_retried(reviews, answer):
    refusal = await reviews.ask(answer)
    assert (refusal.reason, refusal.permanent) == ("CreationForbidden", False)
    assert answer[2] in refusal.message
    reviews.now = refusal.retry_seconds
    assert await reviews.ask() is None


@pytest.mark.parametrize("answer", [WRONG, DECODER], ids=["invalid", "cannot be decoded"])
async def test_an_invalid_pod_is_refused_permanently(reviews, answer):
    refusal = await reviews.ask(answer)
    assert (refusal.reason, refusal.permanent) == ("InvalidTemplate", True)
    assert refusal.message == answer[2]


@pytest.mark.parametrize("answer", [NO_DRY_RUNS, TAKEN], ids=["no dry runs", "name taken"])
async def test_a_failed_dry_run_does_not_block_the_plan(reviews, answer):
    assert await reviews.review(answer) == UNKNOWN


async def test_the_answer_is_the_pod_after_admission(reviews):
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


async def test_a_changed_result_of_admission_is_found_after_the_validity_ends(reviews):
    before = await reviews.review()
    reviews.admit(overhead={"cpu": "1"})
    reviews.now = ALLOWED_SECONDS - 1
    assert await reviews.review() == before
    reviews.now = ALLOWED_SECONDS
    assert b"overhead" in (await reviews.review()).spec
    assert ALLOWED_SECONDS <= FIRST_REPEAT_SECONDS


async def test_the_validity_of_an_approval_doubles_while_the_answer_is_the_same(reviews):
    seconds = []
    for _ in range(4):
        await reviews.review()
        requested_at = reviews.now
        while not reviews.server.dry_runs or reviews.now == requested_at:
            reviews.now += 1
            await reviews.review()
        seconds.append(reviews.now - requested_at)
    assert seconds == [15, 30, 60, 60]
    reviews.admit(overhead={"cpu": "1"})
    reviews.now += MAX_ALLOWED_SECONDS
    await reviews.review()
    reviews.now += ALLOWED_SECONDS
    await reviews.review()
    assert reviews.server.dry_runs


async def test_dry_runs_are_limited_for_each_namespace(reviews):
    for number in range(DRY_RUNS_BURST):
        assert await reviews.ask(kind=str(number)) is None
    refusal = await reviews.ask(kind="more")
    assert (refusal.reason, refusal.retry_seconds) == ("DryRunLimitExceeded", LIMITED_SECONDS)
    assert reviews.server.dry_runs == []
    assert await reviews.ask(job=reviews.other(namespace="rivals"), kind="more") is None
    reviews.now += DRY_RUN_SECONDS
    assert await reviews.ask(kind="more") is None


async def test_the_last_answer_counts_beyond_the_limit_of_dry_runs(reviews):
    """So no status is rewritten."""
    before = await reviews.review()
    refusal = await reviews.ask(QUOTA, kind="b", job=reviews.other())
    reviews.now = ALLOWED_SECONDS
    for number in range(DRY_RUNS_BURST):
        await reviews.ask(kind=f"c{number}")
    assert await reviews.review() == before
    again = await reviews.ask(kind="b", job=reviews.other())
    assert (again.reason, again.message) == (refusal.reason, refusal.message)
    assert reviews.server.dry_runs == []


async def test_a_large_pod_is_tried_each_time_and_not_kept(reviews):
    reviews.admit(nodeSelector={"pool": "x" * MAX_STORED_BYTES})
    for _ in range(2):
        assert len((await reviews.review()).spec) > MAX_STORED_BYTES
        assert len(reviews.server.dry_runs) == 1
    assert len(reviews.admission._allowed) == 0


async def test_the_number_of_kept_approvals_is_limited(reviews):
    for number in range(MAX_APPROVALS + 10):
        await reviews.review(kind=str(number))
        reviews.now += DRY_RUN_SECONDS / 100
        reviews.admission._dry_runs.put_back(reviews.job.metadata.namespace)
    assert len(reviews.admission._allowed) == MAX_APPROVALS


async def test_the_validity_of_a_refusal_doubles_and_its_message_stays(reviews):
    refusals = []
    for _ in range(6):
        refusals.append(await reviews.ask(QUOTA))
        reviews.now += refusals[-1].retry_seconds
    assert [found.retry_seconds for found in refusals] == [5, 10, 20, 40, 60, 60]
    assert len({found.message for found in refusals}) == 1


async def test_a_valid_answer_is_not_requested_again(reviews):
    assert await reviews.ask(QUOTA) is not None
    assert await reviews.ask() is not None
    assert await reviews.ask(attempt=2) is None
    reviews.now = ALLOWED_SECONDS - 1
    assert await reviews.ask(QUOTA, attempt=2) is None
    reviews.now = ALLOWED_SECONDS
    assert await reviews.ask(QUOTA, attempt=2) is not None


async def test_jobs_with_equal_pods_cost_one_dry_run(reviews):
    await reviews.ask()
    assert await reviews.ask(QUOTA, job=reviews.other()) is None
    assert await reviews.ask(QUOTA, job=reviews.other(), kind="b") is not None
    assert await reviews.ask(QUOTA, job=reviews.other(namespace="rivals")) is not None


async def test_an_approval_expires_when_pods_of_its_namespace_are_created(reviews):
    """They count against a quota until all of them exist."""
    await reviews.ask()
    reviews.admission.begins("rivals")
    reviews.now = ALLOWED_SECONDS / 3
    assert await reviews.ask(QUOTA) is None
    reviews.admission.begins(reviews.job.metadata.namespace)
    reviews.now = ALLOWED_SECONDS / 2
    assert await reviews.ask(QUOTA, job=reviews.other()) is not None


async def test_an_approval_given_while_the_quota_is_uncertain_is_valid_briefly(reviews):
    """It may precede pods that are being created."""
    await reviews.ask(is_quota_uncertain=True)
    reviews.now = DOUBTFUL_SECONDS
    assert await reviews.ask(QUOTA) is not None


async def test_a_refusal_invalidates_the_approval_of_equal_pods(reviews):
    await reviews.ask()
    reviews.now = DOUBTFUL_SECONDS
    assert await reviews.ask(QUOTA, job=reviews.other(), is_quota_uncertain=True) is not None
    assert await reviews.ask(QUOTA) is not None


async def test_only_approvals_expire_sooner_while_the_quota_is_uncertain(reviews):
    await reviews.ask()
    assert await reviews.ask(QUOTA, is_quota_uncertain=True) is None
    reviews.now = DOUBTFUL_SECONDS
    assert await reviews.ask(QUOTA, is_quota_uncertain=True) is not None
    assert await reviews.ask(is_quota_uncertain=True) is not None
    assert reviews.server.dry_runs == []


async def test_reviews_of_deleted_jobs_are_forgotten(reviews):
    for attempt in range(1, 50):
        await reviews.ask(QUOTA, attempt=attempt)
        await reviews.ask(attempt=attempt, kind=str(attempt), job=reviews.other())
        reviews.now += 60
    assert len(reviews.admission._refused) + len(reviews.admission._allowed) < 20
