# SPDX-License-Identifier: Apache-2.0
"""The chart accepts the values of each helm command that the documents show."""

import itertools
import pathlib
import re
import shlex

import pytest

from gpupack_devcluster.build import KUBERNETES

ROOT = pathlib.Path(__file__).parents[3]
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
HELM = re.compile(
    r"\bhelm (?:upgrade|install|template) .*?charts/gpupack.*?(?= \| kubectl|$)", re.MULTILINE
)
OPTIONS = re.compile(r"^--(set|set-json|set-string|show-only)$")


def commands():
    for page in sorted((ROOT / "README.md", *ROOT.glob("docs/**/*.md"))):
        for block in BLOCK.findall(page.read_text()):
            for command in HELM.findall(re.sub(r"\\\n\s*", " ", block)):
                yield pytest.param(command, id=f"{page.stem}: {command[:40]}")


@pytest.mark.parametrize("command", list(commands()))
def test_the_values_of_a_documented_command_are_accepted(helm, command):
    words = shlex.split(command)
    values = [
        word
        for option, value in itertools.pairwise(words)
        if OPTIONS.match(option)
        for word in (option, value)
    ]
    done = helm(
        *("template", "gpupack", str(ROOT / "charts/gpupack"), f"--kube-version={KUBERNETES}"),
        *("--namespace=gpupack-system", "--set=image.registry=registry.example", *values),
    )
    assert done.returncode == 0, done.stderr
