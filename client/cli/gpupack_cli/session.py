# SPDX-License-Identifier: Apache-2.0
"""The cluster, user and namespace of a command."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpupack_cli.notes import note_pause
from gpupack_kubeclient.environment import SettingsInvalid

if TYPE_CHECKING:
    from gpupack_cli.rest import Rest
    from gpupack_kubeclient.client import Api

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The options that all commands have.

    Attributes:
        environ: variables of the process.
        kubeconfig: path; empty: from KUBECONFIG.
        context: context of the kubeconfig; empty: its current one.
        namespace: namespace; empty: the context's.
        server: address of the REST API; empty: it is searched for.
        certificate: path of the CA of that server's certificate.
        system_namespace: namespace where gpupack is installed; empty: it is searched for.
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
        """The variables, with the kubeconfig of the option."""
        named = {"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {}
        return {**self.environ, **named}

    def _require_kubeconfig(self) -> None:
        """Check the option's file; files of KUBECONFIG may be missing. Raises SettingsInvalid."""
        if self.kubeconfig and not Path(self.kubeconfig).is_file():
            raise SettingsInvalid(f"--kubeconfig {self.kubeconfig}: there is no such file")

    @contextlib.asynccontextmanager
    async def kubernetes(self) -> AsyncGenerator["Api"]:
        """Connect to the API server.

        Raises:
            SettingsInvalid: there is no usable kubeconfig.
        """
        from gpupack_kubeclient.client import Api  # noqa: PLC0415 - 0.2 s, which --help need not take

        self._require_kubeconfig()
        from gpupack_kubeclient.patience import Patience  # noqa: PLC0415 - as above

        patience = Patience(note_pause)
        context = self.context or None
        async with Api.connect(self.variables, context=context, patience=patience) as api:
            yield api

    @contextlib.asynccontextmanager
    async def rest(self, api: "Api") -> AsyncGenerator["Rest"]:
        """Connect to the REST API.

        Raises:
            RestUnavailable: it is not found, or does not answer.
        """
        from gpupack_cli.rest_connection import connect  # noqa: PLC0415 - httpx takes 0.1 s

        async with connect(self, api) as rest:
            yield rest

    async def current_namespace(self, api: "Api") -> str:
        """Return the namespace of the command."""
        return self.namespace or (await api.identity()).namespace


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine of a command."""
    return asyncio.run(work())
