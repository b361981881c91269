# SPDX-License-Identifier: Apache-2.0
import pathlib

from gpupack_apiserver import openapi

ROOT = pathlib.Path(__file__).parents[3]


def test_the_documents_file_is_what_the_server_answers_with():
    assert (ROOT / "apiserver/openapi.json").read_bytes() == openapi.render()
