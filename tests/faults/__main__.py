"""Run faults on real processes, and print what each came to: one repetition of each kind on each workload.

`python -m tests.faults --kind "answer cut" --workload join --seed 7` runs one; `--list` shows what there is. Several
processes may run beside each other.
"""

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.faults.kinds import KINDS
from tests.faults.repetition import WORKLOADS, run_pass
from tests.faults.runner import Matrix
from tests.faults.servers import Servers

MATRIX = Matrix(KINDS, [*WORKLOADS])


def main(words: Sequence[str]) -> int:
    """Run what the words of the command line choose; return 1 if anything was wrong."""
    arguments = MATRIX.parse("tests.faults", __doc__, words)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        servers = Servers(Path(folder) / "servers")
        try:
            return MATRIX.run(partial(run_pass, servers, Path(folder)), arguments)
        finally:
            servers.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
