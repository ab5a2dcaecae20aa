"""The storages of checkpoints that the same tests run on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from glassflow_dagster.streaming.checkpoint.storage import LocalStorage, Storage


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.servers)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return LocalStorage(tmp_path / "checkpoint")
    make: Callable[[], Storage] = request.getfixturevalue("object_storage")
    return make()
