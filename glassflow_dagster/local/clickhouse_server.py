"""The ClickHouse of the local stack: the engine in the chdb wheel behind ClickHouse's HTTP interface, on loopback.

Run as a process of its own (`python -m glassflow_dagster.local.clickhouse_server --data DIR --port N`) because the
engine allows one process per data folder, and because clients of this one and of a real server are then the same.
SIGTERM ends it; a killed one loses nothing that it has confirmed.
"""

import argparse
import asyncio
import shutil
import signal
import sys
from pathlib import Path

import uvicorn

from glassflow_dagster.local.clickhouse_front.app import create_app
from glassflow_dagster.local.clickhouse_front.engine import Engine

_FAREWELL_SECONDS = 5  # that running requests are given after SIGTERM


def main() -> int:
    """Serve until a signal; 1 when the engine cannot open the folder or the port cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the databases")
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    arguments = parser.parse_args()
    data: Path = arguments.data
    # What a killed process was reading when it died is of no use to anyone.
    spool = data / "incoming"
    shutil.rmtree(spool, ignore_errors=True)
    spool.mkdir(parents=True)
    try:
        engine = Engine(data / "engine")
    except RuntimeError as error:
        print(f"{data}: the ClickHouse engine cannot open this folder: {error}", file=sys.stderr)  # noqa: T201
        return 1
    # Uvicorn ends in order and then raises the signal again, which must not keep the engine from being closed.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: sys.exit(0))
    try:
        asyncio.run(_serve(engine, spool, arguments.port))
    finally:
        engine.close()
    return 0


async def _serve(engine: Engine, spool: Path, port: int) -> None:
    config = uvicorn.Config(
        create_app(engine, spool),
        host="127.0.0.1",
        port=port,
        http="httptools",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_FAREWELL_SECONDS,
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    sys.exit(main())
