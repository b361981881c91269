# SPDX-License-Identifier: Apache-2.0
"""Files of a host whose root is not ours."""

import os
import pathlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.host_files import MAX_BYTES, Root


@pytest.fixture
def root(tmp_path):
    (tmp_path / "host/etc").mkdir(parents=True)
    (tmp_path / "outside").write_text("ours")
    return Root(tmp_path / "host")


def test_links_lead_within_the_hosts_root(root):
    there = root.path / "opt/real.toml"
    there.parent.mkdir()
    there.write_text("theirs")
    (root.path / "etc/absolute").symlink_to("/opt/real.toml")
    (root.path / "etc/relative").symlink_to("../opt/real.toml")
    (root.path / "etc/folder").symlink_to("/opt")
    for name in ("/etc/absolute", "/etc/relative", "/etc/folder/real.toml"):
        assert root.text(name) == "theirs"


@pytest.mark.parametrize("target", ["/outside", "../../outside", "../../../../outside", "loop"])
def test_no_link_leads_out_of_it(root, target):
    (root.path / "etc/loop").symlink_to(target)
    assert root.text("/etc/loop") is None


@given(st.text(alphabet="./ab", max_size=40))
def test_no_name_leads_out_of_it(name):
    root = Root(pathlib.Path("/proc"))
    found = root.find(name)
    assert found is None or found.is_relative_to("/proc")


def test_pipes_folders_and_large_files_are_not_read(root):
    os.mkfifo(root.path / "etc/pipe")
    (root.path / "etc/large").write_bytes(b"x" * (MAX_BYTES + 1))
    for name in ("/etc/pipe", "/etc", "/etc/large", "/missing", ""):
        assert root.text(name) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user")
def test_an_unreadable_file_differs_from_a_missing_one():
    # Other users cannot read pytest's own folders.
    with tempfile.TemporaryDirectory() as folder:
        root = Root(pathlib.Path(folder))
        root.path.chmod(0o755)
        (root.path / "secret").write_text("x")
        (root.path / "secret").chmod(0o600)
        (root.path / "closed").mkdir(mode=0o700)
        names = ("/secret", "/closed/config.toml", "/missing", "/")
        assert [root.is_unreadable(name) for name in names] == [False] * 4
        os.seteuid(65534)
        try:
            refused = [root.is_unreadable(name) for name in names]
        finally:
            os.seteuid(0)
    assert refused == [True, True, False, False]
