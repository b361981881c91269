# SPDX-License-Identifier: Apache-2.0
"""Which cluster a command is about, as whom, in which namespace."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpupack_cli.notes import note_pause
from gpupack_kube.environment import SettingsInvalid

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

    def _require_kubeconfig(self) -> None:
        """Of KUBECONFIG files may be missing; raises SettingsInvalid where an option names one."""
        if self.kubeconfig and not Path(self.kubeconfig).is_file():
            raise SettingsInvalid(f"--kubeconfig {self.kubeconfig}: there is no such file")

    @contextlib.asynccontextmanager
    async def kubernetes(self) -> AsyncGenerator["Api"]:
        """Connect to the API server.

        Raises:
            SettingsInvalid: there is no kubeconfig that can be used.
        """
        from gpupack_kube.client import Api  # noqa: PLC0415 - 0.2 s, which --help need not take

        self._require_kubeconfig()
        from gpupack_kube.patience import Patience  # noqa: PLC0415 - the same

        patience = Patience(note_pause)
        context = self.context or None
        async with Api.connect(self.variables, context=context, patience=patience) as api:
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
