# SPDX-License-Identifier: Apache-2.0
"""Port-forwards; a script replaces kubectl."""

import asyncio
import os
import sys

import pytest
from processes import ends, environment, is_alive

from gpupack_cli import errors, port_forward
from gpupack_cli.session import Session

FORWARDS = """#!/bin/sh
echo "$$ $@" >"$FOUND"
echo "Forwarding from 127.0.0.1:40001 -> 8444"
exec sleep 60
"""


@pytest.fixture
def session(tmp_path):
    def with_kubectl(script, **changed):
        path = tmp_path / "kubectl"
        if script:
            path.write_text(script)
            path.chmod(0o755)
        search = f"{tmp_path}:/usr/bin:/bin" if script else str(tmp_path)
        return Session(environ={"PATH": search, "FOUND": str(tmp_path / "found")}, **changed)

    return with_kubectl


async def test_a_port_is_forwarded_for_as_long_as_it_is_needed(session, tmp_path):
    async with port_forward.port_forward(session(FORWARDS, context="c1"), "s", "ns") as port:
        assert port == 40001
        pid, *arguments = (tmp_path / "found").read_text().split()
        assert is_alive(pid)
    assert ends(pid)
    assert arguments == ["--context=c1", "--namespace=ns", "port-forward", "service/s", ":443"]


async def test_a_service_without_a_certificates_port_is_reported(session):
    said = "error: Service gpupack-api does not have a service port 8443"
    script = f"#!/bin/sh\necho '{said}' >&2\nexit 1"
    with pytest.raises(errors.Unauthenticated, match=r"api\.clientCertificates\.enabled=true"):
        async with port_forward.port_forward(session(script), "s", "ns", 8443):
            pass


async def test_kubectl_ends_when_the_command_fails(session, tmp_path):
    with pytest.raises(RuntimeError):
        async with port_forward.port_forward(session(FORWARDS), "s", "ns"):
            raise RuntimeError
    assert ends((tmp_path / "found").read_text().split()[0])


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("", "not on PATH"),
        (
            '#!/bin/sh\necho "Error from server (NotFound): services s not found" >&2\nexit 1',
            "api.enabled=true",
        ),
        ('#!/bin/sh\necho "pods is forbidden: User \\"bob\\"" >&2\nexit 1', "by --server"),
        ('#!/bin/sh\necho "E1125 memcache.go" >&2\necho "it was refused" >&2\nexit 1', ": it was"),
        ("#!/bin/sh\nexit 1", "it printed no error"),
        ('#!/bin/sh\nprintf "\\033[2Jrubbish\\n"\necho "\\033]0;x\\007bad" >&2\nexit 1', ": bad"),
    ],
)
async def test_errors_of_kubectl_are_reported_with_a_fix(session, script, says):
    with pytest.raises(errors.RestUnavailable) as error:
        async with port_forward.port_forward(session(script), "s", "ns"):
            pass
    assert says in str(error.value)
    assert "\x1b" not in str(error.value)


async def test_a_hanging_kubectl_is_not_waited_for(session, monkeypatch):
    monkeypatch.setattr(port_forward, "START_SECONDS", 0.2)
    with pytest.raises(errors.RestUnavailable, match=r"within 0.2 s"):
        async with port_forward.port_forward(session("#!/bin/sh\nexec sleep 60"), "s", "ns"):
            pass


FOLLOWS = """
import asyncio, os, sys
from gpupack_cli.port_forward import port_forward
from gpupack_cli.session import Session

async def main():
    async with port_forward(Session(environ=os.environ), "s", "ns"):
        print("forwarded", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_kubectl_ends_when_the_command_is_killed(session, tmp_path):
    environ = environment(**session(FORWARDS).environ)
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FOLLOWS, env=environ, stdout=asyncio.subprocess.PIPE
    )
    assert await command.stdout.readline() == b"forwarded\n"
    pid = (tmp_path / "found").read_text().split()[0]
    assert is_alive(pid)
    command.kill()
    await command.wait()
    async with asyncio.timeout(30):
        while is_alive(pid):
            await asyncio.sleep(0.05)


def test_the_kubeconfig_of_an_option_reaches_kubectl():
    found = Session(environ=os.environ, kubeconfig="/other").variables
    assert found["KUBECONFIG"] == "/other"
