"""A driver without Spark that keeps the real one's contract (arguments, heartbeat, SIGTERM) and does no work.

FAKE_DRIVER names its misbehaviour: fails, dies, starts (for ever), late (starts for a while), waits (for its topic),
warms (up for a while), stalls (after a while), deaf (to SIGTERM), silent (writes no heartbeat), new (has not reported a
batch).
"""

import argparse
import itertools
import os
import signal
import sys
import time
from pathlib import Path

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, pipeline_folder, write_heartbeat
from glassflow_dagster.control.sent_definition import FROM_STDIN, SentDefinition
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.stores.bookkeeping.outcomes import Totals

BEHAVIOUR = os.environ.get("FAKE_DRIVER", "")
STATES = {"starts": DriverState.STARTING, "waits": DriverState.WAITING, "fails": DriverState.FAILED}

LATE_BEATS = 20  # one second is enough for a test to see it


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--definition", required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--create-table", action="store_true")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--log-format")
    parser.add_argument("--properties-file")
    parser.add_argument("--log-file", type=Path)
    arguments = parser.parse_args()
    config = _load(arguments.definition)
    folder = pipeline_folder(arguments.state, config.pipeline_id)
    stopping = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN if BEHAVIOUR == "deaf" else lambda *_: stopping.append(True))
    sys.stderr.write(f"arguments: {sys.argv[1:]} dagster: {[k for k in os.environ if k.startswith('DAGSTER_')]}\n")
    if BEHAVIOUR == "dies":
        sys.stderr.write("java.lang.OutOfMemoryError\n")
        return 3
    for beat in itertools.count():
        state = DriverState.STOPPED if stopping else STATES.get(BEHAVIOUR, DriverState.RUNNING)
        if BEHAVIOUR == "late" and beat < LATE_BEATS:
            state = DriverState.STARTING
        if BEHAVIOUR == "stalls" and beat >= LATE_BEATS and not stopping:
            state = DriverState.STALLED
        heartbeat = Heartbeat(
            pipeline_id=config.pipeline_id,
            state=state,
            pid=os.getpid(),
            process_started=start_of(os.getpid()) or "",
            updated_at=time.time() - (3600 if BEHAVIOUR == "silent" else 0),
            message="ClickHouse at 127.0.0.1:1 cannot be reached; start it" if BEHAVIOUR in {*STATES, "stalls"} else "",
            fingerprint=config.fingerprint,
            batch_id=None if BEHAVIOUR == "warms" and beat < LATE_BEATS else 3,
            offsets={} if BEHAVIOUR == "new" else {source.topic: {0: 40, 1: 60} for source in config.inputs},
            totals=Totals(read=100, written=90, duplicates=10),
            lag=None if BEHAVIOUR == "warms" else 0,
            lags={} if BEHAVIOUR == "warms" else {source.topic: 0 for source in config.inputs},
        )
        write_heartbeat(folder, heartbeat)
        if state in (DriverState.STOPPED, DriverState.FAILED):
            return int(state is DriverState.FAILED)
        time.sleep(0.05)
    return 0


def _load(definition: str) -> PipelineConfig:
    if definition == FROM_STDIN:
        return SentDefinition.model_validate_json(sys.stdin.buffer.read()).load()
    return load_pipeline(Path(definition))


if __name__ == "__main__":
    sys.exit(main())
