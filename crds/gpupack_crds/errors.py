# SPDX-License-Identifier: Apache-2.0
"""Errors of reading what the API group defines.

ApiGroupError
├── DevicesAnnotationInvalid   a pod's device annotation is not what a Binding writes
├── ResultUnreadable           a termination message is not a result
├── QuantityInvalid            a quantity such as 30Gi cannot be read
├── VendorsInvalid             the chart's table of vendors is wrong
├── AcceptanceInvalid          the chart's value `acceptance` is wrong
└── LifecycleRefused           a GPUJob is not in a phase in which it can be suspended or rerun
"""


class ApiGroupError(ValueError):
    """Root of errors about text that does not follow the API group's schema."""


class DevicesAnnotationInvalid(ApiGroupError):
    """A pod's device annotation is not what a Binding writes."""


class ResultUnreadable(ApiGroupError):
    """A termination message is not a result of schema gpupack.dev/result/v1."""


class QuantityInvalid(ApiGroupError):
    """A quantity such as 30Gi cannot be read."""


class VendorsInvalid(ApiGroupError):
    """The chart's table of vendors is wrong; the message says where and how."""


class AcceptanceInvalid(ApiGroupError):
    """The chart's value `acceptance` is wrong; the message says what is wrong."""


class LifecycleRefused(ApiGroupError):
    """A GPUJob cannot be suspended, resumed or rerun in its phase; the message says what can be."""
