"""`${...}` references in a definition: their values, and that no secret is shown."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from glassflow_dagster.cli import main
from glassflow_dagster.definition.load import convert_definition, load_pipeline
from glassflow_dagster.definition.plain_secrets import secrets_in
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.errors import GlassflowError
from tests.definition.test_load import definition, write


def with_password(folder: Path, text: str) -> Path:
    """Write the definition with this text as ClickHouse's password."""
    return write(folder, definition(sink__connection_params__password=text))


def password(definition_file: Path, **environment: str) -> str:
    return load_pipeline(definition_file, environment).sink.connection_params.password.get_secret_value()


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("secret", "secret"),
        ("secret\n", "secret"),
        ("secret\r\n", "secret"),
        ("two\nlines\n\n", "two\nlines\n"),
        ('q"uo:te ${VAR} ${file:x}', 'q"uo:te ${VAR} ${file:x}'),
        ("", ""),
    ],
)
def test_a_file_stands_for_its_text(tmp_path: Path, content: str, value: str) -> None:
    secret = tmp_path / "secrets" / "password"
    secret.parent.mkdir()
    secret.write_bytes(content.encode())
    assert password(with_password(tmp_path, f"${{file:{secret}}}")) == value
    # A relative path starts at the definition's folder, wherever the command runs.
    assert password(with_password(tmp_path, "${file:secrets/password}")) == value


def test_files_and_variables_may_stand_beside_each_other(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1\n")
    file = with_password(tmp_path, "${file:one}-${TWO}-${THREE:-3}-${file:-a default}")
    assert password(file, TWO="2") == "1-2-3-a default"
    assert password(file, TWO="2", file="of a variable") == "1-2-3-of a variable"


def test_a_file_that_is_not_there_is_a_mistake_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, problem in {"gone": "cannot be read (No such file or directory)", "bytes": "is not UTF-8 text"}.items():
        file = with_password(tmp_path, f"${{file:{name}}}")
        with pytest.raises(DefinitionError) as raised:
            load_pipeline(file, {})
        at = f"{file}: sink.connection_params.password: file {tmp_path / name} {problem}"
        assert str(raised.value).startswith(at)
        # The file may exist where the pipeline runs.
        assert f"${{file:{name}}}" in convert_definition(file, {}).yaml


SECRETS = {
    "sources__0__connection_params__password": "sources[0].connection_params.password",
    "sources__0__connection_params__client_key": "sources[0].connection_params.client_key",
    "sources__0__connection_params__kerberos_keytab": "sources[0].connection_params.kerberos_keytab",
    "sources__0__schema_registry": "sources[0].schema_registry.api_secret",
    "sink__connection_params__password": "sink.connection_params.password",
    "sink__connection_params__client_key": "sink.connection_params.client_key",
}


@pytest.mark.parametrize(("change", "place"), SECRETS.items())
def test_a_secret_that_stands_in_a_definition_is_named_and_not_shown(tmp_path: Path, change: str, place: str) -> None:
    def wrapped(secret: str) -> object:
        return {"url": "http://r.test", "api_secret": secret} if change.endswith("registry") else secret

    certificate = {change.replace("client_key", "client_cert"): "certificate"} if "client_key" in change else {}
    nowhere = {
        "sink__connection_params__password": "",
        "sink__connection_params__secure": True,
        **certificate,
        change: wrapped("hunter2"),
    }
    file = write(tmp_path, definition(**nowhere))
    message = f"{place}: is in plain text in the file; write ${{VAR}} or ${{file:PATH}} instead"
    assert load_pipeline(file, {}).origin.secret_warnings == (message,)
    assert message in convert_definition(file, {}).warnings
    shown = CliRunner().invoke(main, ["validate", str(file)])
    assert "hunter2" not in shown.output
    for reference in ("${SECRET}", "${file:secret}"):
        assert secrets_in(definition(**{**nowhere, change: wrapped(reference)})) == ()


def test_validate_warns_of_it(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["validate", str(with_password(tmp_path, "hunter2"))])
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "warning: sink.connection_params.password: is in plain text in the file" in shown.stderr
    assert "hunter2" not in shown.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("password: hunter2: x", "mapping values are not allowed here, line 1, column 18; correct it"),
        ('password: "hunter2', "while scanning a quoted scalar found unexpected end of stream, line 1, column 19"),
        ("password: *hunter2", "found undefined alias '...', line 1, column 11"),
        ("password: !hunter2 x", "could not determine a constructor for the tag '...', line 1, column 11"),
        (
            "password: %hunter2",
            "while scanning for the next token found character '%' that cannot start any token, line 1, column 11",
        ),
        (
            "password: @hunter2",
            "while scanning for the next token found character '@' that cannot start any token, line 1, column 11",
        ),
    ],
)
def test_what_cannot_be_parsed_is_told_by_its_place_and_not_shown(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, text), {})
    assert f"is neither YAML nor JSON: {message}" in " ".join(str(raised.value).replace(" ,", ",").split())
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://u:hunter2@host:port", "http://u:hunter2/3@host", "ftp://u:hunter2@host"])
def test_an_address_that_is_none_is_not_shown_with_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(GlassflowError, match="GLASSFLOW_CLICKHOUSE_URL: is not an address") as raised:
        load_pipeline(with_password(tmp_path, ""), {"GLASSFLOW_CLICKHOUSE_URL": url})
    assert "hunter2" not in str(raised.value)
