"""Options that several commands share, and how the commands report errors."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from glassflow_dagster.control.log import LOG_FORMAT, LogFormat
from glassflow_dagster.control.runners.settings import RUNNER, RUNNER_OPTIONS, TYPES, settings_of_options
from glassflow_dagster.definition.model.state import STATE, STORES, State, is_url
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.given_schema import GivenSchema
from glassflow_dagster.inference.servers import broker_addresses
from glassflow_dagster.runtime.environment import variables
from glassflow_dagster.runtime.safe_text import json_text, printable

DEFAULT_DATA = Path(".glassflow")
DEFAULT_STATE = DEFAULT_DATA / "state"
PIPELINES = Path("pipelines")


class _StateType(click.ParamType):  # type: ignore[type-arg] # generic in the newest click only
    """A local folder of state, or the URL of a store.

    A URL becomes the environment variable, by which it replaces the definition's `state`, in this process and in the
    drivers that it starts; the value is then the default folder, where working files remain.
    """

    name = "directory or url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the local folder; fails for a file, and for a URL that is no store."""
        if not is_url(str(value)):
            folder: Path = click.Path(path_type=Path, file_okay=False).convert(value, param, ctx)
            return folder
        try:
            url = State(url=value).url
        except ValueError:
            self.fail(f"{value!r} is no store for state; write {STORES}", param, ctx)
        (ctx or click.get_current_context()).with_resource(variables({STATE: url}))
        return DEFAULT_STATE


state_option = click.option(
    "--state", type=_StateType(), default=DEFAULT_STATE, show_default=True, envvar=STATE,
    help="Folder of checkpoints, heartbeats and logs; or the checkpoints' store, such as s3a://BUCKET/PREFIX.",
)  # fmt: skip
data_option = click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_DATA, show_default=True,
    help="Folder of the servers' data and logs.",
)  # fmt: skip
pipelines_option = click.option(
    "--pipelines", type=click.Path(path_type=Path, file_okay=False), default=PIPELINES, show_default=True,
    envvar="GLASSFLOW_PIPELINES", help="Folder of the pipeline definitions.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=300.0, show_default=True,
    help="Seconds to wait for a server that does not answer.",
)  # fmt: skip
log_format_option = click.option(
    "--log-format", type=click.Choice([each.value for each in LogFormat]), envvar=LOG_FORMAT,
    callback=lambda _context, _option, value: LogFormat(value) if value else None,
    help="Format of the driver's messages: text (default), or one JSON object per line.",
)  # fmt: skip
conf_option = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; repeatable.")
pool_option = click.option(
    "--pool",
    metavar="NAME",
    help="Share the Spark JVM of this pool with other pipelines; in place of the definition's.",
)


def runner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: add the options of the runner, which it gets as `runner`, its settings."""

    @click.option(
        "--runner", "name", type=click.Choice(TYPES), default=TYPES[0], show_default=True, envvar=RUNNER,
        help="What runs the driver.",
    )  # fmt: skip
    @click.option(
        "--runner-option", "pairs", multiple=True, metavar="KEY=VALUE", envvar=RUNNER_OPTIONS,
        help="Setting of the runner, such as master=spark://HOST:7077; repeatable.",
    )  # fmt: skip
    @wraps(command)
    def run(*args: Any, name: str, pairs: tuple[str, ...], **kwargs: Any) -> Any:
        try:
            settings = settings_of_options(name, pairs)
        except GlassflowError as error:
            raise click.UsageError(str(error)) from None
        return command(*args, runner=settings, **kwargs)

    return run


take_over_option = click.option(
    "--take-over", "taking_over", is_flag=True,
    help="Stop the driver that runs this pipeline on this host and continue from its checkpoint.",
)  # fmt: skip
create_table_option = click.option("--create-table", is_flag=True, help="Create the target table when it is missing.")


def _require_addresses(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of --brokers, None when it is not given; raises BadParameter when it has no address."""
    if value and not broker_addresses(value):
        raise click.BadParameter("write HOST:PORT, several with commas between them")
    return value


brokers_option = click.option(
    "--brokers", metavar="HOST:PORT,...", callback=_require_addresses,
    help="Kafka brokers, reached without encryption or credentials.",
)  # fmt: skip


def given_schema_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: add the options of a schema in a file, which it gets as `schema`, a `GivenSchema` or None."""

    @click.option(
        "--schema", type=click.Path(path_type=Path), metavar="FILE",
        help="Schema of Avro or Protobuf values: a .proto file, or an Avro schema under another name.",
    )  # fmt: skip
    @click.option(
        "--message-type",
        metavar="NAME",
        help="Protobuf's message in --schema; by default the one that the value names, or the first.",
    )
    @click.option("--with-schema-id", is_flag=True, help="With --schema: a schema id precedes each value.")
    @wraps(command)
    def run(*args: Any, schema: Path | None, message_type: str | None, with_schema_id: bool, **kwargs: Any) -> Any:
        if (message_type or with_schema_id) and schema is None:
            raise click.UsageError("--message-type and --with-schema-id apply to --schema; add it")
        given = None if schema is None else GivenSchema(schema, message_type, with_schema_id)
        return command(*args, schema=given, **kwargs)

    return run


def report(text: str) -> None:
    """Print a message to stderr; stdout is for results."""
    click.echo(printable(text), err=True)


def show(text: str) -> None:
    """Print a result, which may have text of records, to stdout."""
    click.echo(printable(text))


def show_json(value: Any, indent: int | None = 2) -> None:
    """Print a result as JSON to stdout."""
    click.echo(json_text(value, indent))


def exit_on_error(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command: print a `GlassflowError` as one message without a traceback, and exit with 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except GlassflowError as error:
            # Each line of a DefinitionError begins with the file and the field's path, so it needs no prefix.
            report(f"error: {error}" if not isinstance(error, DefinitionError) else str(error))
            sys.exit(1)

    return run


def settings_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Split KEY=VALUE texts into a dict of Spark settings; raises UsageError for one without "="."""
    for pair in pairs:
        if "=" not in pair:
            raise click.UsageError(f"--conf {pair}: write KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)
