# SPDX-License-Identifier: Apache-2.0
"""Settings with which TensorFlow or PyTorch uses exactly the GPUs of a process.

    environment     ─► place_of            ─► Place: TensorFlow's workers, and this one's index
    TensorFlowSetup ─► tensorflow_settings ─► TensorFlowSettings: environment, and what to call
    PyTorchSetup    ─► pytorch_settings    ─► PyTorchSettings

Neither framework is imported. The environment has to be set before a framework is imported. The
rest is applied in the process, by `gpupack.frameworks` or by the program that got it from the REST
API.
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
