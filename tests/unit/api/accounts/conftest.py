# SPDX-License-Identifier: Apache-2.0
import pytest
from accounts import Accounts


@pytest.fixture
def accounts(tmp_path):
    made = Accounts(tmp_path / "cost.sqlite")
    yield made
    made.kill()
