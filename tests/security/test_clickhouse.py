"""HTTPS to ClickHouse: certificates are verified in both directions, unless the definition says otherwise."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.clickhouse.client import wait_for_clickhouse
from glassflow_dagster.stores.clickhouse.errors import ClickHouseRefused
from glassflow_dagster.stores.clickhouse.queries import fetch
from tests.security.certificates import Authority
from tests.security.terminator import tls_before
from tests.servers.stack import Stack

# A password for connections that fail before ClickHouse checks it; the embedded server's user has none.
PASSWORD = "ClickHouse-s3cret"
STRANGER = Authority("someone else's authority")


@pytest.fixture(scope="module")
def https(stack: Stack, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with tls_before(stack.clickhouse_port, authority, tmp_path_factory.mktemp("tls"), ask_client=False) as port:
        yield port


@pytest.fixture(scope="module")
def mutual(stack: Stack, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with tls_before(stack.clickhouse_port, authority, tmp_path_factory.mktemp("mtls"), ask_client=True) as port:
        yield port


def connection(port: int, **parts: Any) -> ClickHouseConnection:
    settings = {
        "host": "localhost",
        "port": port,
        "database": "default",
        "username": "default",
        "secure": True,
        **parts,
    }
    settings.setdefault("password", PASSWORD)
    return ClickHouseConnection.model_validate(settings)


def answers(settings: ClickHouseConnection) -> bool:
    own = settings.model_copy(update={"password": SecretStr("")})
    return fetch(wait_for_clickhouse(own, 1, print), "SELECT 1") == [(1,)]


def connection_error(settings: ClickHouseConnection) -> str:
    """Return the error of a connection, which must fail without retries."""
    waited: list[str] = []
    with pytest.raises(ClickHouseRefused) as raised:
        wait_for_clickhouse(settings, 20, waited.append)
    assert waited == []
    assert "\n" not in str(raised.value)
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


def test_the_definitions_authority_is_trusted(https: int, authority: Authority) -> None:
    assert answers(connection(https, root_ca=authority.certificate))


def test_no_other_authority_is_trusted(https: int) -> None:
    for root_ca in (None, STRANGER.certificate):
        message = connection_error(connection(https, root_ca=root_ca))
        assert message.startswith(f"ClickHouse at localhost:{https}: TLS failed (SSLCertVerificationError")
        assert "set sink.connection_params.root_ca" in message


def test_the_name_of_the_host_is_verified(https: int, authority: Authority) -> None:
    message = connection_error(connection(https, root_ca=authority.certificate, host="127.0.0.1"))
    assert "certificate is not valid for '127.0.0.1'" in message
    assert "and host to a name that the certificate is for" in message


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_nothing_is_verified_where_the_definition_says_so(https: int) -> None:
    assert answers(connection(https, skip_certificate_verification=True))
    certificates = {"root_ca": STRANGER.certificate, "host": "127.0.0.1"}
    assert answers(connection(https, skip_certificate_verification=True, **certificates))


def test_a_server_may_ask_for_the_clients_certificate(mutual: int, authority: Authority, tmp_path: Path) -> None:
    client, stranger = authority.sign("client"), STRANGER.sign("stranger")
    root_ca = authority.certificate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        mine = {"client_cert": client.certificate, "client_key": client.key}
        assert answers(connection(mutual, root_ca=root_ca, **mine))
    assert list(tmp_path.iterdir()) == []  # the key is not left on disk
    theirs = {"client_cert": stranger.certificate, "client_key": stranger.key}
    for shown in ({}, theirs):
        message = connection_error(connection(mutual, root_ca=root_ca, **shown))
        assert "set sink.connection_params.client_cert" in message


def test_a_port_without_tls_is_named(stack: Stack) -> None:
    assert "set sink.connection_params.http_port to the port of HTTPS" in connection_error(
        connection(stack.clickhouse_port)
    )


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"root_ca": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"},
            "root_ca: contains no readable certificate",
        ),
        ({"root_ca": "/etc/ca.pem"}, "root_ca: is neither PEM nor base64"),
        ({"client_cert": "own", "client_key": "another's"}, "client_cert: cannot be used with client_key"),
    ],
)
def test_what_cannot_be_used_is_told(parts: dict[str, str], message: str, https: int, authority: Authority) -> None:
    made = {"own": authority.sign("a").certificate, "another's": authority.sign("b").key}
    settings = {name: made.get(text, text) for name, text in parts.items()}
    with pytest.raises(GlassflowError, match=message):
        wait_for_clickhouse(connection(https, **settings), 300, print)
