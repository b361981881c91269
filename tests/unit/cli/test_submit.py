# SPDX-License-Identifier: Apache-2.0
"""The objects that remain after `submit` fails or is interrupted."""

import asyncio

import pytest
from click.testing import CliRunner

from gpupack_cli import main
from gpupack_cli.commands.submit import _create, command
from gpupack_cli.errors import InputInvalid, UsageInvalid
from gpupack_kubeclient.errors import AlreadyExists, Forbidden, Refused, Unreachable

JOB = {"metadata": {"name": "train", "namespace": "team"}, "spec": {"gpus": 1}}
SCRIPTS = {"metadata": {"name": "train-scripts", "namespace": "team"}, "data": {"a.py": "1"}}
PATH = "/api/v1/namespaces/team/configmaps/train-scripts"


async def test_scripts_of_a_refused_job_are_deleted(server):
    server.refuse = {"gpujobs": (403, "Forbidden")}
    with pytest.raises(Forbidden):
        await _create(server.api, JOB, SCRIPTS)
    assert PATH not in server.objects


async def test_an_interrupted_submission_keeps_its_scripts(server, capsys):
    server.slow = {"POST": 0.3}
    creating = asyncio.ensure_future(_create(server.api, JOB, SCRIPTS))
    while PATH not in server.objects:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    (owner,) = server.objects[PATH]["metadata"]["ownerReferences"]
    assert owner["name"] == "train"
    assert "gpujob team/train created; it continues" in capsys.readouterr().err


@pytest.mark.parametrize("code", [500, 504])
async def test_scripts_are_kept_where_the_job_may_exist(server, code, capsys):
    server.refuse = {"gpujobs": (code, "InternalError")}
    with pytest.raises(Refused):
        await _create(server.api, JOB, SCRIPTS)
    assert PATH in server.objects


async def test_a_job_that_may_exist_is_reported(server, monkeypatch, capsys):
    create = server.api.create

    async def unanswered(resource, body, **given):
        if body is JOB:
            raise Unreachable("no answer")
        return await create(resource, body, **given)

    monkeypatch.setattr(server.api, "create", unanswered)
    with pytest.raises(Unreachable):
        await _create(server.api, JOB, SCRIPTS)
    assert PATH in server.objects
    assert "gpujob team/train may have been created" in capsys.readouterr().err


async def test_an_existing_job_is_reported_and_not_its_scripts(server):
    await _create(server.api, JOB, SCRIPTS)
    with pytest.raises(InputInvalid, match=r"^gpujob team/train exists already; choose another"):
        await _create(server.api, JOB, SCRIPTS)


async def test_existing_scripts_without_a_job_are_reported(server):
    server.put(PATH, SCRIPTS)
    with pytest.raises(AlreadyExists):
        await _create(server.api, JOB, SCRIPTS)


def submitted(*options):
    given = ["--image", "i", "--dry-run", *options, "--", "true"]
    return CliRunner().invoke(command, given)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--gpus", "2"), "--share excludes --gpus"),
        (("--mig", "1g.18gb"), "--share excludes --mig"),
        (("--gpus", "2", "--mig", "1g.18gb"), "--share excludes --gpus and --mig"),
    ],
)
def test_exclusive_size_options_are_refused(options, says):
    done = submitted("--share", "25,10Gi", *options)
    assert isinstance(done.exception, UsageInvalid)
    assert done.exception.status == 2
    assert says in str(done.exception)


def test_slices_are_counted_by_gpus():
    shown = submitted("--mig", "1g.18gb", "--gpus", "2").output
    assert "gpus: 2\n  mig: 1g.18gb\n" in shown


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("45", 45)]
)
def test_deadline_and_ttl_have_units(text, seconds):
    shown = submitted("--deadline", text, "--ttl", text).output
    assert f"activeDeadlineSeconds: {seconds}\n" in shown
    assert f"ttlSecondsAfterFinished: {seconds}\n" in shown


@pytest.mark.parametrize(
    ("option", "text"), [("--deadline", "0"), ("--deadline", "soon"), ("--ttl", "-1s")]
)
def test_an_invalid_duration_is_wrong_usage(option, text):
    done = submitted(option, text)
    assert done.exit_code == 2
    assert f"{text!r}" in done.output


async def test_detach_prints_the_name_of_the_job(server, capsys):
    asked = ["submit", "--kubeconfig", server.kubeconfig, "--image", "i", "--detach", "--", "true"]
    status = await asyncio.to_thread(main.run_command, asked)
    shown = capsys.readouterr()
    (path,) = (path for path in server.objects if "/gpujobs/" in path)
    assert (status, shown.out) == (0, f"{path.rpartition('/')[2]}\n")
    assert "created" in shown.err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "write lower-case letters") for name in ("a.b", "1st", "a-", "A")),
        ("a" * 53, "is too long: it has 53 characters, and the maximum is 52"),
    ],
)
def test_a_dry_run_refuses_the_names_that_the_cluster_refuses(name, says):
    ran = CliRunner().invoke(
        main.group, ["submit", "--image=i", "--dry-run", "--name", name, "true"]
    )
    assert ran.exit_code == 2
    assert says in " ".join(ran.output.split())


@pytest.mark.parametrize("option", ["--share", "--mig"])
def test_an_empty_size_is_refused_instead_of_requesting_a_whole_gpu(option):
    ran = CliRunner().invoke(main.group, ["submit", "--image=i", "--dry-run", option, "", "true"])
    assert isinstance(ran.exception, UsageInvalid)
    assert str(ran.exception) == f"{option} is empty; give a value, or leave the option out"
