# SPDX-License-Identifier: Apache-2.0
"""Bridges that send traffic between GPUs up to the CPU."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.preflight.pci import redirects

BRIDGES = ("0000:00:01.0", "0000:00:02.0")


def space(control, *, length=4096):
    """A bridge's configuration space: advanced errors at 0x100, ACS at 0x148."""
    found = bytearray(4096)
    struct.pack_into("<I", found, 0x100, 0x148 << 20 | 1 << 16 | 0x0001)
    struct.pack_into("<IHH", found, 0x148, 1 << 16 | 0x000D, 0x1F, control)
    return bytes(found[:length])


@pytest.mark.parametrize(
    ("control", "length", "on"),
    [
        (0x1D, 4096, True),
        (0x04, 4096, True),
        (0x11, 4096, False),
        (0x1D, 64, False),
        (0x1D, 256, False),
    ],
)
def test_redirection_is_read_from_a_bridges_control_register(control, length, on):
    assert redirects(space(control, length=length)) == on


@given(st.binary(max_size=4096))
def test_no_configuration_space_is_read_beyond_its_end_or_forever(rubbish):
    assert redirects(bytes(256) + rubbish) in {True, False}


def test_a_list_of_capabilities_that_loops_ends():
    found = bytearray(4096)
    struct.pack_into("<I", found, 0x100, 0x100 << 20 | 1)
    assert not redirects(bytes(found))


@pytest.mark.parametrize(("control", "status"), [(0x1D, "warning"), (0, "ok")])
def test_gpus_below_redirecting_bridges_are_a_warning(root, control, status):
    root.driver()
    for number, bridge in enumerate(BRIDGES):
        gpu = f"0000:{number + 1}b:00.0"
        there = f"sys/devices/pci0000:00/{bridge}"
        root.file(f"{there}/config").write_bytes(space(control))
        root.file(f"{there}/{gpu}/vendor", "0x10de\n")
        root.file(f"{there}/{gpu}/class", "0x030200\n")
        root.link(f"sys/bus/pci/devices/{bridge}", f"../../../devices/pci0000:00/{bridge}")
        root.link(f"sys/bus/pci/devices/{gpu}", f"../../../devices/pci0000:00/{bridge}/{gpu}")
    found = root.found()["peer to peer"]
    assert found.status == status
    assert [bridge in found.found for bridge in BRIDGES] == [status == "warning"] * 2
