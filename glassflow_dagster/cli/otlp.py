"""The command that receives OpenTelemetry's data and writes it to Kafka."""

from pathlib import Path

import click

from glassflow_dagster.cli.options import brokers_option, exit_on_error, report, timeout_option
from glassflow_dagster.errors import GlassflowError

_MEBIBYTE = 1024 * 1024
_file = click.Path(path_type=Path, dir_okay=False)
_port = click.IntRange(0, 65535)


@click.command()
@brokers_option
@click.option(
    "--from", "source", metavar="FILE", type=click.Path(path_type=Path),
    help="Use the connection_params of this definition for Kafka.",
)  # fmt: skip
@click.option("--traces-topic", metavar="TOPIC", help="Topic for traces; without it they are refused.")
@click.option("--logs-topic", metavar="TOPIC", help="Topic for logs; without it they are refused.")
@click.option("--metrics-topic", metavar="TOPIC", help="Topic for metrics; without it they are refused.")
@click.option("--create-topics", is_flag=True, help="Create missing topics, with the brokers' defaults.")
@click.option(
    "--format", "format_name", type=click.Choice(["otlp_proto", "otlp_json"]), default="otlp_proto", show_default=True,
    help="Encoding of the messages in the topics.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--http-port", type=_port, default=4318, show_default=True, help="Port for HTTP; 0 for a free one.")
@click.option("--grpc-port", type=_port, default=4317, show_default=True, help="Port for gRPC; 0 for a free one.")
@click.option("--token-file", metavar="FILE", type=_file, help="File of a bearer token that clients must send.")
@click.option("--tls-cert", metavar="FILE", type=_file, help="Certificate chain in PEM format, for both ports.")
@click.option("--tls-key", metavar="FILE", type=_file, help="Its unencrypted private key in PEM format.")
@click.option(
    "--max-request-bytes", type=click.IntRange(min=1024), default=16 * _MEBIBYTE, show_default=True,
    help="Largest request, after decompression.",
)  # fmt: skip
@click.option(
    "--max-in-flight-bytes", type=click.IntRange(min=1024), default=64 * _MEBIBYTE, show_default=True,
    help="Bytes of requests in progress, and as many of messages that wait for Kafka; above it, clients are told to "
    "try again.",
)  # fmt: skip
@click.option(
    "--ack-timeout", type=click.FloatRange(min=0.1, max=300), default=8.0, show_default=True,
    help="Seconds within which Kafka must acknowledge a message. Exporters wait 10 s for an answer.",
)  # fmt: skip
@timeout_option
@exit_on_error
def otlp(
    brokers: str | None,
    source: Path | None,
    traces_topic: str | None,
    logs_topic: str | None,
    metrics_topic: str | None,
    create_topics: bool,
    format_name: str,
    host: str,
    http_port: int,
    grpc_port: int,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    max_request_bytes: int,
    max_in_flight_bytes: int,
    ack_timeout: float,
    timeout: float,
) -> None:
    """Receive OTLP by HTTP and gRPC and write each export request to a Kafka topic, until Ctrl-C.

    A request is answered with success only after Kafka has acknowledged it. Brokers without an option are those of
    GLASSFLOW_KAFKA_BROKERS, or else those of the embedded stack.
    """
    given = {"traces": traces_topic, "logs": logs_topic, "metrics": metrics_topic}
    topics = {signal: topic for signal, topic in given.items() if topic}
    if not topics:
        raise click.UsageError("give at least one of --traces-topic, --logs-topic, --metrics-topic")
    if bool(tls_cert) != bool(tls_key):
        raise click.UsageError("--tls-cert and --tls-key belong together; give both")
    if max_in_flight_bytes < max_request_bytes:
        raise click.UsageError("--max-in-flight-bytes must not be below --max-request-bytes; raise it")
    from glassflow_dagster.inference.servers import Servers

    try:
        from glassflow_dagster.server.otlp.admission import Token
        from glassflow_dagster.server.otlp.encoding import Encoding
        from glassflow_dagster.server.otlp.serve import Options, serve
    except ModuleNotFoundError as error:
        raise GlassflowError(
            f"otlp: the package of {error.name} is not installed; run: pip install 'glassflow-dagster[otlp]'"
        ) from None
    options = Options(
        connection=Servers(brokers, source).kafka(), topics=topics, create_topics=create_topics,
        written=next(each for each in Encoding if each.format_name == format_name),
        host=host, http_port=http_port, grpc_port=grpc_port, token=Token.read(token_file),
        tls=(tls_cert, tls_key) if tls_cert and tls_key else None, largest_request=max_request_bytes,
        in_flight=max_in_flight_bytes, ack_timeout=ack_timeout, broker_timeout=timeout,
    )  # fmt: skip
    serve(options, report)
