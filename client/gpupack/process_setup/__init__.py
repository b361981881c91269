# SPDX-License-Identifier: Apache-2.0
"""What a process has to set so that TensorFlow or PyTorch uses exactly the GPUs that it was given.

    environment     ─► place_of            ─► Place: TensorFlow's workers, and which this is
    TensorFlowSetup ─► tensorflow_settings ─► TensorFlowSettings: environment, and what to call
    PyTorchSetup    ─► pytorch_settings    ─► PyTorchSettings

Neither framework is imported. The environment must be there before a framework is; the rest is
applied in the process by `gpupack.frameworks`, or by whoever got it from the REST API.
"""

from gpupack.process_setup.devices import SetupInvalid, Visible
from gpupack.process_setup.gang import Place, place_of
from gpupack.process_setup.precision import Precision, precision_of
from gpupack.process_setup.pytorch import (
    Ddp,
    DdpSettings,
    ProcessGroup,
    PyTorchSettings,
    PyTorchSetup,
    pytorch_settings,
)
from gpupack.process_setup.tensorflow import (
    TensorFlowSettings,
    TensorFlowSetup,
    apply_tensorflow,
    tensorflow_settings,
)

__all__ = [
    "Ddp",
    "DdpSettings",
    "Place",
    "Precision",
    "ProcessGroup",
    "PyTorchSettings",
    "PyTorchSetup",
    "SetupInvalid",
    "TensorFlowSettings",
    "TensorFlowSetup",
    "Visible",
    "apply_tensorflow",
    "place_of",
    "precision_of",
    "pytorch_settings",
    "tensorflow_settings",
]
