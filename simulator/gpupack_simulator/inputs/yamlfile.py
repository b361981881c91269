# SPDX-License-Identifier: Apache-2.0
"""YAML documents with the line of every field."""

import re
from typing import Any

import yaml

from gpupack_simulator.inputs.compression import read_text
from gpupack_simulator.inputs.faults import Faults

_MAX_WRITTEN_OUT = 1_000_000
_MAX_REPEATED = 100
"""Maximum ratio of a file's fields with aliases expanded to its own fields."""

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


class Document:
    """The data of one YAML document, and the lines of its fields."""

    def __init__(self, faults: Faults) -> None:
        """Parse the file; raise InvalidInput if it is not YAML, is empty, or repeats a field."""
        self._faults = faults
        self._walked: set[int] = set()
        text = read_text(faults.path, faults)
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            if node is None:
                raise faults.fatal("is empty")
            self._node: yaml.Node = node
            self._refuse_bombs(node, {})
            self._refuse_doubles(node, "")
            self.data: Any = loader.construct_document(node)
        except yaml.composer.ComposerError as error:
            message, mark = f"is not YAML: {error.problem}", error.problem_mark
            if "single document" in (error.context or ""):
                message = "another document begins; make them one"
            raise faults.fatal(message, line=0 if mark is None else mark.line + 1) from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line = 0 if mark is None else mark.line + 1
            raise faults.fatal(f"is not YAML: {error.problem}", line=line) from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            message = f"is not YAML: it has the character {error.character:#x}; take it out"
            raise faults.fatal(message, line=line) from error
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
            raise faults.fatal(f"is not YAML: {error}") from error
        except RecursionError as error:
            raise faults.fatal("is nested too deeply") from error
        faults.check()

    def line(self, path: str) -> int:
        """Return the line of a field such as `jobs[2].gpus`, or of the last part that exists."""
        node = self._node
        for match in _STEP.finditer(path):
            below = _child(node, match[1] or int(match[2]))
            if below is None:
                break
            node = below
        return node.start_mark.line + 1

    def _refuse_bombs(self, node: yaml.Node, sizes: dict[int, int]) -> int:
        """Return the size with all aliases expanded, as `<<` does; raise if it is too large."""
        known = sizes.get(id(node))
        if known is not None:
            return known
        sizes[id(node)] = 0  # within itself
        below = [] if isinstance(node, yaml.ScalarNode) else node.value
        parts = (part for one in below for part in (one if isinstance(one, tuple) else (one,)))
        size = 1 + sum(self._refuse_bombs(part, sizes) for part in parts)
        if size > _MAX_WRITTEN_OUT and size > _MAX_REPEATED * len(sizes):
            message = f"its aliases stand for more than {_MAX_WRITTEN_OUT:,} fields; write them out"
            raise self._faults.fatal(message, line=node.start_mark.line + 1)
        sizes[id(node)] = size
        return size

    def _refuse_doubles(self, node: yaml.Node, path: str) -> None:
        """Report repeated fields: YAML takes the last one, but a scenario with both is a mistake.

        Aliases put one node in several places, even in itself, so each is visited once.
        """
        if id(node) in self._walked:
            return
        self._walked.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._refuse_doubles(item, f"{path}[{index}]")
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                inner = f"{path}.{name}" if path else name
                if name in seen:
                    self._faults.add(key.start_mark.line + 1, inner, "stands here twice")
                seen.add(name)
                self._refuse_doubles(value, inner)


def _child(node: yaml.Node, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        found: list[yaml.Node] = [value for key, value in node.value if key.value == step]
        return found[0] if found else None
    return None
