# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_crds.devices import DeviceShare, decode_devices, encode_devices
from gpupack_crds.errors import DevicesAnnotationInvalid

shares = st.builds(
    DeviceShare,
    uuid=st.text(min_size=1, max_size=40),
    percent=st.integers(1, 100),
    memory_mib=st.integers(1, 200_000),
)


@given(st.lists(shares, min_size=1, unique_by=lambda share: share.uuid))
def test_what_is_encoded_is_decoded(devices):
    assert decode_devices(encode_devices(devices)) == tuple(devices)


def test_the_annotation_is_spelled_as_the_documentation_says():
    device = DeviceShare(uuid="GPU-1", percent=100, memory_mib=81559)
    assert encode_devices([device]) == '[{"uuid":"GPU-1","percent":100,"memoryMiB":81559}]'


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "null",
        "[]",
        "{}",
        '[{"x":' * 3_000,
        "[" * 3_000 + "]" * 3_000,
        '[{"uuid":"GPU-1"}]',
        '[{"uuid":"GPU-1","percent":101,"memoryMiB":1}]',
        '[{"uuid":"GPU-1","percent":0,"memoryMiB":1}]',
        '[{"uuid":"","percent":1,"memoryMiB":1}]',
        '[{"uuid":"GPU-1","percent":1,"memoryMiB":16777217}]',
        '[{"uuid":"GPU-1","percent":1,"memoryMiB":1},{"uuid":"GPU-1","percent":1,"memoryMiB":1}]',
    ],
)
def test_an_annotation_that_no_binding_wrote_is_refused(annotation):
    with pytest.raises(DevicesAnnotationInvalid, match="device annotation"):
        decode_devices(annotation)
