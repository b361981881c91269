# SPDX-License-Identifier: Apache-2.0
"""Which cluster a command is about, as whom, in which namespace."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gpupack_cli.rest import Rest
    from gpupack_kube.client import Api

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The options that all commands have.

    Attributes:
        environ: variables of the process.
        kubeconfig: path; empty: as KUBECONFIG says.
        context: of the kubeconfig; empty: its current one.
        namespace: empty: the context's.
        server: address of the REST API; empty: it is looked for.
        certificate: path of the CA certificate by which that server is checked.
        system_namespace: where gpupack is installed; empty: it is looked for.
    """

    environ: Mapping[str, str]
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    server: str = ""
    certificate: str = ""
    system_namespace: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The variables, with the kubeconfig that was named by an option."""
        named = {"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {}
        return {**self.environ, **named}

    @contextlib.asynccontextmanager
    async def kubernetes(self) -> AsyncGenerator["Api"]:
        """Connect to the API server.

        Raises:
            SettingsInvalid: there is no kubeconfig that can be used.
        """
        from gpupack_kube.client import Api  # noqa: PLC0415 - 0.2 s, which --help need not take

        async with Api.connect(self.variables, context=self.context or None) as api:
            yield api

    @contextlib.asynccontextmanager
    async def rest(self, api: "Api") -> AsyncGenerator["Rest"]:
        """Connect to the REST API.

        Raises:
            ServiceAway: it is not found, or does not answer.
        """
        from gpupack_cli.finding import found  # noqa: PLC0415 - httpx takes 0.1 s

        async with found(self, api) as rest:
            yield rest

    async def here(self, api: "Api") -> str:
        """The namespace that is meant where none is named."""
        return self.namespace or (await api.identity()).namespace


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run what a command does."""
    return asyncio.run(work())
