"""Serves metrics by HTTP, in the text format that the asking program accepts: OpenMetrics, or Prometheus' older one."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.metrics.exposition import MetricsSource, registry_of


@contextmanager
def serve_metrics(host: str, port: int, source: MetricsSource) -> Iterator[int]:
    """Serve the metrics of `source` at /metrics while the block runs; yield the port, which is a free one for port 0.

    Raises `GlassflowError` when the address cannot be used.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=registry_of(source))
    except OSError as error:
        raise GlassflowError(
            f"metrics: cannot listen on {host}:{port} ({error.strerror}); choose another port"
        ) from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
