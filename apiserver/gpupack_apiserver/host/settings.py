# SPDX-License-Identifier: Apache-2.0
"""Settings, read from the environment once at start.

Folder and GPUs of the ledger are those of the Python library: GPUPACK_HOST_FOLDER,
GPUPACK_SIMULATED_GPUS, or the file that GPUPACK_CONFIG names.
"""

import dataclasses
import ipaddress
import pathlib
from collections.abc import Mapping
from typing import Final

from gpupack_kubeclient.environment import Environment, SettingsInvalid

LOOPBACK: Final = "127.0.0.1"
MAX_PORT: Final = 65535


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """All settings of one machine's server."""

    address: str = LOOPBACK
    """GPUPACK_LISTEN_ADDRESS: an address other than loopback requires a certificate."""
    port: int = 8480
    """GPUPACK_LISTEN_PORT."""
    tls_cert: str = ""
    """GPUPACK_TLS_CERT: path of the certificate chain (PEM); empty: HTTP, only on loopback."""
    tls_key: str = ""
    """GPUPACK_TLS_KEY: path of the certificate's key (PEM)."""
    state: pathlib.Path
    """GPUPACK_STATE_FOLDER: folder of `token`."""
    page_folder: str = ""
    """GPUPACK_PAGE_FOLDER: folder of the built dashboard; empty: it is not served."""
    log_level: str = "INFO"
    """GPUPACK_LOG_LEVEL."""

    @property
    def token(self) -> pathlib.Path:
        """File with the token that callers send."""
        return self.state / "token"

    @property
    def url(self) -> str:
        """URL at which this machine reaches the server."""
        address = ipaddress.ip_address(self.address)
        if address.is_unspecified:
            address = ipaddress.ip_address(LOOPBACK if address.version == 4 else "::1")  # noqa: PLR2004
        host = str(address) if address.version == 4 else f"[{address}]"  # noqa: PLR2004
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "HostSettings":
        """Read all settings.

        Raises:
            SettingsInvalid: the message names the variable, its value and the allowed values.
        """
        environment = Environment(environ)
        address = environment.parsed(
            "GPUPACK_LISTEN_ADDRESS", _address, LOOPBACK, "an IP address of this machine"
        )
        cert = environment.text("GPUPACK_TLS_CERT", "")
        if not cert and not ipaddress.ip_address(address).is_loopback:
            raise SettingsInvalid(
                f"GPUPACK_LISTEN_ADDRESS={address!r} is reachable from other machines, and tokens "
                "are sent only over TLS; set GPUPACK_TLS_CERT and GPUPACK_TLS_KEY, or listen at "
                f"{LOOPBACK}"
            )
        return cls(
            address=address,
            port=environment.whole("GPUPACK_LISTEN_PORT", 8480, most=MAX_PORT),
            tls_cert=cert,
            tls_key=environment.required("GPUPACK_TLS_KEY", "the path of the certificate's key")
            if cert
            else "",
            state=environment.path("GPUPACK_STATE_FOLDER", str(_state_folder(environment))),
            page_folder=environment.text("GPUPACK_PAGE_FOLDER", ""),
            log_level=environment.log_level(),
        )


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _state_folder(environment: Environment) -> pathlib.Path:
    """Return the folder by the XDG base directories."""
    home = environment.text("HOME", str(pathlib.Path("~").expanduser()))
    return environment.path("XDG_STATE_HOME", f"{home}/.local/state") / "gpupack"
