"""What marks the tests of replicas."""

import pytest

from tests.replicas.engine import SYSTEM, THIS_SYSTEM

# The wheel for another system has other machine code; another version of it on this one is an error.
with_replicas = pytest.mark.skipif(THIS_SYSTEM != SYSTEM, reason=f"the engine's code is known for {SYSTEM} only")
