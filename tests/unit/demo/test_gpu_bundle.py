# SPDX-License-Identifier: Apache-2.0
"""The bundle for a host without downloads."""

from pathlib import Path

import gpu_bundle

LOCK = """\
# written by a tool
aiohttp==3.14.5 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
numpy==2.4.6 \\
    --hash=sha256:cc
uvloop==0.23.0 ; sys_platform != 'win32' \\
    --hash=sha256:dd
"""


def test_libraries_are_taken_from_the_lock_with_their_hashes_and_nothing_else():
    kept = gpu_bundle.filter_lock(LOCK, {"aiohttp", "uvloop"})
    assert gpu_bundle.locked_names(kept) == ["aiohttp", "uvloop"]
    assert kept.count("--hash") == 3
    assert "numpy" not in kept


def test_every_library_that_a_service_imports_is_locked_for_development_too():
    lock = (gpu_bundle.ROOT / "requirements-dev.lock").read_text()
    wanted = gpu_bundle.wanted_libraries()
    assert wanted <= set(gpu_bundle.locked_names(lock))
    assert {"aiohttp", "uvicorn", "grpcio", "cryptography"} <= wanted


def test_a_programs_libraries_and_its_loader_are_read_from_ldd():
    listing = (
        "\tlinux-vdso.so.1 (0x00007f6f)\n"
        "\tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f6f)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f6f)\n"
    )
    assert gpu_bundle.libraries_of(listing) == [
        Path("/lib/x86_64-linux-gnu/libmnl.so.0"),
        Path("/lib64/ld-linux-x86-64.so.2"),
    ]


def test_a_wrapped_program_runs_without_the_hosts_libraries(tmp_path):
    (tmp_path / "carried").mkdir()
    gpu_bundle.wrap(Path("/usr/bin/env"), tmp_path)
    carried = {path.name for path in (tmp_path / "carried").iterdir()}
    assert {"env", "libc.so.6"} <= carried
    assert gpu_bundle.output(str(tmp_path / "env"), "-i", "A=1", "/usr/bin/env") == "A=1"


def test_a_part_is_packed_again_only_when_its_inputs_change(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_bundle, "BUNDLE", tmp_path)
    monkeypatch.setattr(gpu_bundle, "XZ", ("xz", "-0", "--stdout"))
    source = tmp_path / "source"
    packed = []

    def stage(folder):
        packed.append(source.read_text())
        (folder / "file").write_text("content")

    for text in ("a", "a", "b"):
        source.write_text(text)
        gpu_bundle.pack_part("part", [source], stage)
    assert packed == ["a", "b"]
