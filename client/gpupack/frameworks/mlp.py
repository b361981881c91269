# SPDX-License-Identifier: Apache-2.0
"""A multilayer perceptron from a dictionary, for programs without their own model.

{"type": "mlp", "input_dim": 10, "hidden_units": [128, 64], "output_dim": 1}
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from gpupack.errors import ConfigInvalid

Width = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]


class MlpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers with `activation` between them; the last has none."""

    type: Literal["mlp"]
    input_dim: Width
    output_dim: Width
    hidden_units: Annotated[tuple[Width, ...], msgspec.Meta(max_length=256)] = ()
    activation: Literal["relu", "tanh", "gelu"] = "relu"

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths from the first to the last layer."""
        return (self.input_dim, *self.hidden_units, self.output_dim)


def parse_mlp(description: Mapping[str, Any]) -> MlpConfig:
    """Check a description.

    Raises:
        ConfigInvalid: names path and value.
    """
    try:
        return msgspec.convert(description, MlpConfig)
    except msgspec.ValidationError as error:
        raise ConfigInvalid(
            f"model: {error}, in {dict(description)!r:.200}; give a function that builds your "
            'model, or {"type": "mlp", "input_dim": …, "hidden_units": […], "output_dim": …}'
        ) from error
