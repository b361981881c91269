# SPDX-License-Identifier: Apache-2.0
"""Who has the job judged that is asked about: the REST API by a token, else the command itself."""

import contextlib
import json

import pytest

from gpupack_cli import errors
from gpupack_cli.session import Session

SPEC = {"gpus": 1, "workload": {"name": "matmul"}}
MANIFEST = {
    "apiVersion": "gpupack.dev/v1beta1",
    "kind": "GPUJob",
    "metadata": {"name": "asked", "namespace": "team"},
    "spec": SPEC,
}


class Rest:
    """Notes what it is asked."""

    def __init__(self, *, shows_certificate):
        self.shows_certificate, self.asked = shows_certificate, []

    async def post(self, path, body, kind):
        self.asked.append((path, body))
        return kind(outcome="Starts")


@pytest.fixture
def ask(server, monkeypatch, tmp_path):
    """Runs the command; what the REST API was asked, and its status."""
    (tmp_path / "job.json").write_text(json.dumps(MANIFEST))
    server.admit = lambda tried: tried | {"spec": tried["spec"] | {"workers": 1}}

    async def asked(*, shows_certificate):
        rest = Rest(shows_certificate=shows_certificate)

        @contextlib.asynccontextmanager
        async def reached(self, api):
            yield rest

        monkeypatch.setattr(Session, "rest", reached)
        status = await server.called("what-if", "-f", str(tmp_path / "job.json"))
        return rest.asked, status

    return asked


async def test_by_a_certificate_the_command_has_the_job_judged_as_its_user(ask, server):
    asked, status = await ask(shows_certificate=True)
    ((path, body),) = asked
    assert (status, path, body["namespace"]) == (0, "what-if", "team")
    assert (body["judged"], body["job"]) == (True, SPEC | {"workers": 1})
    assert (len(server.dry_runs), server.writes) == (1, [])


async def test_what_the_api_server_refuses_is_no_question(ask, server, capsys):
    server.refuse["gpujobs"] = (422, "Invalid", "spec.gpus: set 1 or more")
    asked, status = await ask(shows_certificate=True)
    assert (asked, status) == ([], errors.InputWrong.exit_status)
    assert "set 1 or more" in capsys.readouterr().err


async def test_by_a_token_the_rest_api_has_it_judged(ask, server):
    ((_, body),), status = await ask(shows_certificate=False)
    assert (status, body["job"], "judged" in body) == (0, SPEC, False)
    assert server.dry_runs == []
