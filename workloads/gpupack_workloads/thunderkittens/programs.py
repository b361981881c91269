# SPDX-License-Identifier: Apache-2.0
"""Counts the kernels' lines of code, without comments, docstrings and empty lines.

Counted is what runs on the GPU. What launches it is not: tensor maps, grids and checks of arguments
are in Python for all of them.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import gpupack_kernels

HERE = Path(__file__).parent
OPERATORS = Path(gpupack_kernels.__file__).parent / "operators"
GEMM, ATTENTION = "gemm", "attention"
OURS, GLUON, TRITON = "thunderkittens", "gluon", "triton"

# Files; of Python's, the functions, where there are others for something else.
Program = tuple[tuple[Path, tuple[str, ...]], ...]
PROGRAMS: dict[tuple[str, str], Program] = {
    (GEMM, OURS): ((HERE / "gemm.cu", ()),),
    (GEMM, GLUON): ((OPERATORS / "gemm/hopper/kernel.py", ()),),
    (GEMM, TRITON): ((OPERATORS / "gemm/portable/kernel.py", ()),),
    (ATTENTION, OURS): ((HERE / "attention.cu", ()),),
    (ATTENTION, GLUON): (
        (OPERATORS / "attention/hopper/forward.py", ()),
        (
            OPERATORS / "attention/hopper/tiles.py",
            ("keep", "allocate_barriers", "load_tile", "store_tile"),
        ),
    ),
    (ATTENTION, TRITON): (
        (
            OPERATORS / "attention/portable/kernel.py",
            ("inside", "load_rows", "store_rows", "visible", "attention_forward_kernel"),
        ),
    ),
}
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
COMMENT_OF_CPP = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def lines_of(program: Program) -> int:
    """Return the lines of a kernel's program."""
    return sum(
        lines_of_cpp(path.read_text())
        if path.suffix == ".cu"
        else lines_of_python(path.read_text(), functions)
        for path, functions in program
    )


def lines_of_cpp(text: str) -> int:
    """Return the lines of a source in C++; ours have no strings that look like comments."""
    return sum(bool(line.strip()) for line in COMMENT_OF_CPP.sub("", text).splitlines())


def lines_of_python(text: str, functions: tuple[str, ...]) -> int:
    """Return the lines of functions with their decorators; of all where none is named."""
    tree = ast.parse(text)
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    wanted = [node for node in found if not functions or node.name in functions]
    missing = set(functions) - {node.name for node in wanted}
    if missing:
        raise ValueError(f"there is no function {', '.join(sorted(missing))}")
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return sum(len(code & _lines(node)) for node in wanted)


def _lines(node: ast.FunctionDef) -> set[int]:
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    lines = set(range(first, (node.end_lineno or first) + 1))
    if ast.get_docstring(node) is not None:
        said = node.body[0]
        lines -= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    return lines
