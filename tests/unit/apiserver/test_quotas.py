# SPDX-License-Identifier: Apache-2.0
import msgspec

from gpupack_crds.kinds import GpuCohort


async def test_a_quota_shows_the_order_and_the_maximum_run_time_of_its_jobs(call, model, quota):
    built = {"metadata": {"name": "lab"}, "spec": {"maxRunSeconds": 3600}}
    model.quotas.cohorts.upsert(msgspec.convert(built, GpuCohort))
    quota("team", {"cohort": "lab", "jobOrder": "UserFairShare"}, nominal="8")
    quota("others", nominal="4")
    found = (await call("quotas")).body["quotas"]
    shown = [(each["namespace"], each["job_order"], each["max_run_seconds"]) for each in found]
    assert shown == [("others", "Age", None), ("team", "UserFairShare", 3600)]


async def test_the_problem_of_a_quota_names_what_the_cluster_lacks(call, quota):
    lacks = {
        "type": "CapacityMissing",
        "status": "True",
        "reason": "ModelNotFound",
        "message": "no node has a GPU of model H300",
        "lastTransitionTime": "2026-11-24T10:00:00Z",
    }
    quota("team", problem="there is no GPUCohort lab", conditions=[lacks])
    (found,) = (await call("quotas")).body["quotas"]
    assert found["problem"] == "there is no GPUCohort lab; no node has a GPU of model H300"
