# SPDX-License-Identifier: Apache-2.0
"""Settings of the cost service, read from the environment once at start."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from gpupack_apiserver.settings import MAX_PORT, MIN_FRESH_SECONDS, ReadingSettings
from gpupack_cost import Prices
from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance, parse_acceptance
from gpupack_kubeclient.environment import Environment, SettingsInvalid
from gpupack_scheduler.decisions import MAX_SECONDS

SECONDS_PER_DAY: Final = 86_400.0
FILE_NAME: Final = "cost.sqlite"


class CostSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings in the form of the chart's values.

    Attributes:
        currency: currency of the prices.
        prices: price of one GPU for an hour, by model.
        retention_days: days for which sums are kept.
    """

    currency: Annotated[str, msgspec.Meta(max_length=16)] = ""
    prices: dict[str, float] = {}
    retention_days: Annotated[int, msgspec.Meta(ge=1, le=3660)] = 400


def parse_cost(text: str) -> CostSettings:
    """Parse the settings.

    Raises:
        ValueError: its text says what is not valid.
    """
    found = msgspec.json.decode(text, type=CostSettings)
    Prices(found.prices)
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CostServiceSettings:
    """All settings of the cost service."""

    cost: CostSettings = dataclasses.field(default_factory=CostSettings)
    """GPUPACK_COST, JSON."""
    folder: Path = Path("/var/lib/gpupack-cost")
    """GPUPACK_COST_FOLDER: folder of the file, on a disk of this machine or attached to it."""
    observed_resources: tuple[str, ...] = ()
    """GPUPACK_OBSERVED_RESOURCES, as the extender's."""
    acceptance: Acceptance | None = None
    """GPUPACK_ACCEPTANCE, as the extender's."""
    port: int = 8445
    """GPUPACK_LISTEN_PORT, HTTPS on all addresses."""
    tls_cert: str = ""
    """GPUPACK_TLS_CERT: path of the certificate chain (PEM)."""
    tls_key: str = ""
    """GPUPACK_TLS_KEY: path of the certificate's key (PEM)."""
    stale_after_seconds: float = 90.0
    """GPUPACK_STALE_AFTER_SECONDS: after longer silence of a watch nothing is
    answered or counted."""
    meter_seconds: float = 30.0
    """GPUPACK_METER_SECONDS: interval of GPU measurements."""
    readings: ReadingSettings | None = None
    """GPUPACK_READINGS_*, as the API's: how the agents' readings are fetched."""
    log_level: str = "INFO"
    """GPUPACK_LOG_LEVEL."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "CostServiceSettings":
        """Read all settings.

        Raises:
            SettingsInvalid: the message names the variable, its value and the allowed values.
        """
        environment = Environment(environ)
        try:
            cost = environment.stated("GPUPACK_COST", parse_cost, CostSettings())
        except msgspec.MsgspecError as error:
            raise SettingsInvalid(f"GPUPACK_COST is not valid: {error}") from error
        return cls(
            cost=cost,
            folder=environment.path("GPUPACK_COST_FOLDER", "/var/lib/gpupack-cost"),
            observed_resources=environment.parsed(
                "GPUPACK_OBSERVED_RESOURCES", names.foreign_resources, (), names.FOREIGN_RESOURCES
            ),
            acceptance=environment.stated("GPUPACK_ACCEPTANCE", parse_acceptance, None),
            port=environment.whole("GPUPACK_LISTEN_PORT", 8445, most=MAX_PORT),
            tls_cert=environment.required("GPUPACK_TLS_CERT", "the path of the certificate"),
            tls_key=environment.required("GPUPACK_TLS_KEY", "the path of the certificate's key"),
            stale_after_seconds=environment.seconds(
                "GPUPACK_STALE_AFTER_SECONDS", 90.0, least=MIN_FRESH_SECONDS, most=MAX_SECONDS
            ),
            meter_seconds=environment.seconds(
                "GPUPACK_METER_SECONDS", 30.0, least=1.0, most=MAX_SECONDS
            ),
            readings=ReadingSettings.of(environment),
            log_level=environment.log_level(),
        )
