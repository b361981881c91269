# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/python.md, as programs of their own."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/python.md").read_text()
SECTION = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SEARCHED = (
    "client",
    "client/compat",
    "lib/devices",
    "lib/restapi",
    "lib/placement",
    "lib/kubeclient",
)
"""Folders of the checkout that the installed packages are made of."""


def examples():
    """Names, of the section and its number there, and programs."""
    for title, text in SECTION.findall(PAGE):
        for number, program in enumerate(BLOCK.findall(text), start=1):
            yield f"{title.lower().replace(' ', '-')}-{number}", program


def run(program, folder, environ):
    """Run it as a user does: in a separate process and folder."""
    path = folder / "example.py"
    path.write_text(program)
    paths = [*(str(ROOT / each) for each in SEARCHED), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, path],
        cwd=folder,
        env={**environ, "PYTHONPATH": ":".join(paths)},
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
