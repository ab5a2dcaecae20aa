"""The distributed files: a wheel, and its use in containers."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def project() -> Path:
    return PROJECT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the backend that pyproject.toml names; it compiles what the cache does not have."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True, timeout=600)
    [built] = folder.glob("*.whl")
    return built
