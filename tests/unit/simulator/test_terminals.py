# SPDX-License-Identifier: Apache-2.0
"""The simulator's command decides about terminals and pipes as `gpupack` does."""

from pathlib import Path

from command_process import SIMULATOR, in_closed_pipe, in_pipe

CLASSROOM = str(Path(__file__).parents[3] / "examples/simulator/classroom.yaml")
COMPARE = [*SIMULATOR, "compare", CLASSROOM, "--policies", "best-fit,first-fit"]


def test_a_pipe_gets_each_row_on_one_line_and_no_progress_bar():
    done = in_pipe(COMPARE, COLUMNS="40")
    assert (done.status, done.err) == (0, "")
    assert any("allocated" in line and "makespan" in line for line in done.lines)


def test_a_pipe_that_no_process_reads_ends_it_as_any_other_command():
    done = in_closed_pipe(COMPARE)
    assert (done.status, done.err) == (141, "")
