# SPDX-License-Identifier: Apache-2.0
"""The check of a what-if job: by the REST API with a token, else by the command."""

import contextlib
import json

import pytest
from rest_answers import outcome

from gpupack_cli import errors
from gpupack_cli.session import Session
from gpupack_restapi.questions import Outcome

SPEC = {"gpus": 1, "workload": {"name": "matmul"}}
MANIFEST = {
    "apiVersion": "gpupack.dev/v1beta1",
    "kind": "GPUJob",
    "metadata": {"name": "asked", "namespace": "team"},
    "spec": SPEC,
}


class Rest:
    """A REST API that records its calls."""

    def __init__(self, *, uses_certificate):
        self.uses_certificate, self.asked = uses_certificate, []

    async def post(self, path, body, kind):
        self.asked.append((path, body))
        assert kind is Outcome
        return outcome("Starts")


@pytest.fixture
def ask(server, monkeypatch, tmp_path):
    """Run the command; return the calls of the REST API, and the status."""
    (tmp_path / "job.json").write_text(json.dumps(MANIFEST))
    server.admit = lambda tried: tried | {"spec": tried["spec"] | {"workers": 1}}

    async def asked(*, uses_certificate):
        rest = Rest(uses_certificate=uses_certificate)

        @contextlib.asynccontextmanager
        async def reached(self, api):
            yield rest

        monkeypatch.setattr(Session, "rest", reached)
        status = await server.called("what-if", "-f", str(tmp_path / "job.json"))
        return rest.asked, status

    return asked


async def test_with_a_certificate_the_command_has_the_job_checked(ask, server):
    asked, status = await ask(uses_certificate=True)
    ((path, body),) = asked
    assert (status, path, body["namespace"]) == (0, "what-if", "team")
    assert (body["judged"], body["job"]) == (True, SPEC | {"workers": 1})
    assert (len(server.dry_runs), server.writes) == (1, [])


async def test_a_job_refused_by_the_api_server_is_not_sent(ask, server, capsys):
    server.refuse["gpujobs"] = (422, "Invalid", "spec.gpus: set 1 or more")
    asked, status = await ask(uses_certificate=True)
    assert (asked, status) == ([], errors.InputInvalid.exit_status)
    assert "set 1 or more" in capsys.readouterr().err


async def test_with_a_token_the_rest_api_has_the_job_checked(ask, server):
    ((_, body),), status = await ask(uses_certificate=False)
    assert (status, body["job"], "judged" in body) == (0, SPEC, False)
    assert server.dry_runs == []
