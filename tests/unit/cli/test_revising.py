# SPDX-License-Identifier: Apache-2.0
"""`submit --on`: a higher revision of a job that exists."""

import pytest
from fake_api import ApiServer, connected

from gpupack_cli.errors import InputWrong, NotThere
from gpupack_cli.main import called
from gpupack_cli.revising import revise
from gpupack_kubeclient.errors import Forbidden

POD = {"spec": {"containers": [{"name": "worker", "image": "train:2"}]}}
MANIFEST = {"metadata": {"name": "train-x", "namespace": "team"}, "spec": {"template": POD}}
SCRIPTS = {"metadata": {"name": "train-x", "namespace": "team"}, "data": {"a.py": "1"}}
JOBS = "/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs"
CONFIG = "/api/v1/namespaces/team/configmaps/train-x"


@pytest.fixture
async def server():
    made = ApiServer()
    async with connected(made.app()) as (api, _):
        made.api = api
        spec = {"gpus": 1, "workload": {"name": "matmul"}, "template": {"spec": {"volumes": []}}}
        made.objects[f"{JOBS}/held"] = {
            "metadata": {
                "name": "held",
                "namespace": "team",
                "uid": "uid-held",
                "resourceVersion": "7",
            },
            "spec": spec,
            "status": {"phase": "Running"},
        }
        yield made


async def test_the_job_runs_what_is_asked_for_and_nothing_of_before(server):
    job = await revise(server.api, "held", MANIFEST, None)
    assert job.spec.revision == 1
    patch = server.objects[f"{JOBS}/held"]["spec"]
    instead = {"spec": POD["spec"] | {"volumes": None}}
    assert patch == {"revision": 1, "workload": None, "template": instead}
    assert (await revise(server.api, "held", MANIFEST, None)).spec.revision == 2


async def test_scripts_go_with_the_job(server):
    await revise(server.api, "held", MANIFEST, SCRIPTS)
    (owner,) = server.objects[CONFIG]["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"]) == ("held", "uid-held")


async def test_scripts_go_where_the_job_is_refused(server):
    server.refuse = {"gpujobs": (403, "Forbidden")}
    with pytest.raises(Forbidden):
        await revise(server.api, "held", MANIFEST, SCRIPTS)
    assert CONFIG not in server.objects


async def test_a_job_that_is_not_there_or_has_ended_runs_nothing(server):
    with pytest.raises(NotThere, match="no GPUJob team/other"):
        await revise(server.api, "other", MANIFEST, SCRIPTS)
    server.objects[f"{JOBS}/held"]["status"]["phase"] = "Failed"
    with pytest.raises(InputWrong, match=r"has ended \(Failed\)"):
        await revise(server.api, "held", MANIFEST, SCRIPTS)
    assert CONFIG not in server.objects


@pytest.mark.parametrize("option", ["--gpus=2", "--workers=2", "--dry-run", "--deadline=9"])
def test_what_decides_about_a_new_job_does_not_go_with_it(option, capsys):
    assert called(["submit", "--on=held", "--image=i", option, "--", "true"]) == 2
    assert f"{option.partition('=')[0]} does not go with --on" in capsys.readouterr().err
