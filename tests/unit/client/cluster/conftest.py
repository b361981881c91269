# SPDX-License-Identifier: Apache-2.0
import ssl

import httpx
import pytest
import tenacity

from gpupack.cluster.backend import ClusterBackend
from gpupack.cluster.calls import Calls
from gpupack.cluster.endpoint import Endpoint


class Server:
    """A server with answers in turn; `asked` has the received calls."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []
        self.tokens = iter(f"token-{number}" for number in range(99))
        self.closed = False

    def __call__(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        status, body, *headers = answer
        return httpx.Response(status, json=body, headers=headers[0] if headers else {})

    def close(self):
        self.closed = True


@pytest.fixture
def serve(monkeypatch):
    """Return a backend of a server with these answers, and the server; `fields` of the endpoint."""
    monkeypatch.setattr(tenacity.nap.time, "sleep", lambda seconds: None)

    def start(*answers, namespace="", **fields):
        server = Server(*answers)
        trusted = ssl.create_default_context()
        usual = {"token": lambda: next(server.tokens)}
        endpoint = Endpoint(
            address=lambda: "https://here",
            trusted=lambda: trusted,
            namespace=namespace,
            close=server.close,
            **usual | fields,
        )
        calls = Calls(endpoint, httpx.MockTransport(server))
        return ClusterBackend(calls, namespace=namespace), server

    return start
