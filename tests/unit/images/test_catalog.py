# SPDX-License-Identifier: Apache-2.0
import pathlib
import re

import pytest

from gpupack_images.catalog import BASE, IMAGES, select
from gpupack_images.errors import UnknownImage

ROOT = pathlib.Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCKS = sorted([*ROOT.glob("requirements*.lock"), *ROOT.glob("*/*.lock"), *ROOT.glob("*/*/*.lock")])
LAUNCHERS = ("launcher-from-source", "launcher-of-the-host")
STAGES = [
    (parent, name)
    for found, name in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    for parent in (LAUNCHERS if found == "${LAUNCHER}" else (found,))
]


def test_every_image_is_a_target_of_the_dockerfile():
    assert {image.target for image in IMAGES} <= {name for _, name in STAGES}


def test_every_target_is_an_image_or_the_base_of_one():
    parents = {parent for parent, _ in STAGES}
    assert {name for _, name in STAGES} <= {image.target for image in IMAGES} | parents


def test_the_one_outside_base_is_the_one_that_can_be_made_without_a_registry():
    stages = {name for _, name in STAGES}
    assert {parent for parent, _ in STAGES} - stages == {BASE, "scratch"}


def test_images_are_selected_in_building_order():
    assert [image.target for image in select(["pause", "operator"])] == ["operator", "pause"]


def test_images_that_need_github_are_built_only_if_named():
    named = {"thunderkittens", "workloads-thunderkittens"}
    on_request = {image.target for image in IMAGES} - {image.target for image in select([])}
    assert on_request == {*named, "controllers"}
    assert {image.target for image in select(sorted(named))} == named
    assert {name for _, name in STAGES if "github.com" in stage_of(name)} == {"thunderkittens"}


def stage_of(name):
    (stage,) = (each for each in DOCKERFILE.split("\nFROM ") if f" AS {name}\n" in each)
    return stage


def test_large_images_are_torch_tensorflow_and_those_based_on_them():
    large = {"torch", "tensorflow"}
    for parent, name in STAGES:
        if parent in large:
            large.add(name)
    assert {image.target for image in IMAGES if image.large} == large


def test_tensorflow_is_built_without_torch():
    assert {name: parent for parent, name in STAGES}["tensorflow"] == "base"


def test_an_unknown_image_is_refused_with_what_there_is():
    with pytest.raises(UnknownImage, match="no image is called opertor; there are: operator, ext"):
        select(["opertor"])


def test_no_dependency_is_installed_without_its_hash():
    assert "pip install" not in DOCKERFILE
    script = (ROOT / "hack/images/install-locked").read_text()
    commands = re.findall(r"pip install (?:.*\\\n)*.*", script)
    assert len(commands) == 2
    assert all("--require-hashes" in command for command in commands)


def test_the_launcher_is_compiled_from_source_unless_the_caller_says_otherwise():
    assert DOCKERFILE.count("\nARG LAUNCHER=launcher-from-source\n\nFROM ") == 1


def test_our_own_code_is_copied_last_and_only_its_bytecode_follows():
    for stage in DOCKERFILE.split("\nFROM ")[1:]:
        steps = re.findall(r"^(COPY|RUN) (.*)", stage, flags=re.MULTILINE)
        if steps and "compileall" in steps[-1][1]:
            assert steps.pop()[1].endswith(" /opt/gpupack")
        code = [" /opt/gpupack/" in rest for _, rest in steps]
        assert code == sorted(code), stage


def test_no_image_gets_a_folder_twice():
    for line in re.findall(r"^COPY (.*) /opt/gpupack/$", DOCKERFILE, flags=re.MULTILINE):
        folders = [ROOT / folder for folder in line.split() if not folder.startswith("--")]
        assert not [one for one in folders for other in folders if one in other.parents], line


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lock_names_no_address_and_no_path(lock):
    lines = [line for line in lock.read_text().splitlines() if "--hash" not in line]
    assert not [line for line in lines if "://" in line or " /" in line or "--index" in line]
