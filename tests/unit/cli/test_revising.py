# SPDX-License-Identifier: Apache-2.0
"""`submit --on`: a new revision of an existing job."""

import pytest
from fake_api import ApiServer, connected

from gpupack_cli.errors import InputInvalid, ObjectNotFound
from gpupack_cli.main import run_command
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


async def test_a_revision_replaces_the_whole_template(server):
    job = await revise(server.api, "held", MANIFEST, None)
    assert job.spec.revision == 1
    patch = server.objects[f"{JOBS}/held"]["spec"]
    instead = {"spec": POD["spec"] | {"volumes": None}}
    assert patch == {"revision": 1, "workload": None, "template": instead}
    assert (await revise(server.api, "held", MANIFEST, None)).spec.revision == 2


async def test_scripts_are_owned_by_the_job(server):
    await revise(server.api, "held", MANIFEST, SCRIPTS)
    (owner,) = server.objects[CONFIG]["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"]) == ("held", "uid-held")


async def test_scripts_are_deleted_where_the_job_is_refused(server):
    server.refuse = {"gpujobs": (403, "Forbidden")}
    with pytest.raises(Forbidden):
        await revise(server.api, "held", MANIFEST, SCRIPTS)
    assert CONFIG not in server.objects


async def test_a_missing_or_finished_job_cannot_be_revised(server):
    with pytest.raises(ObjectNotFound, match="no GPUJob team/other"):
        await revise(server.api, "other", MANIFEST, SCRIPTS)
    server.objects[f"{JOBS}/held"]["status"]["phase"] = "Failed"
    with pytest.raises(InputInvalid, match=r"has ended \(Failed\)"):
        await revise(server.api, "held", MANIFEST, SCRIPTS)
    assert CONFIG not in server.objects


@pytest.mark.parametrize("option", ["--gpus=2", "--workers=2", "--dry-run", "--deadline=9"])
def test_options_of_a_new_job_are_refused_with_on(option, capsys):
    assert run_command(["submit", "--on=held", "--image=i", option, "--", "true"]) == 2
    assert f"{option.partition('=')[0]} excludes --on" in capsys.readouterr().err
