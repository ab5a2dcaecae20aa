"""Rules for the connections of a definition: credentials, protocols and certificates."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from glassflow_dagster.definition.model.connections import (
    TOKEN_KEYS,
    ClickHouseConnection,
    KafkaConnection,
    OAuthClient,
    SchemaRegistry,
    region_of,
)
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import Problem

# Mechanism -> required keys; any other mechanism requires _USERNAME_AND_PASSWORD.
_CREDENTIALS = {
    "GSSAPI": ("username", "kerberos_service_name", "kerberos_realm", "kerberos_keytab", "kerberos_config"),
    "OAUTHBEARER": ("oauth",),
    "AWS_MSK_IAM": (),
    "NO_AUTH": (),
}
# They have settings that belong to the whole JVM.
WITH_OWN_JVM = ("GSSAPI", "AWS_MSK_IAM")
_USERNAME_AND_PASSWORD = ("username", "password")


def connection_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield the problems of credentials, protocols and certificates."""
    for index, source in enumerate(config.sources):
        connection, path = source.connection_params, f"sources[{index}].connection_params"
        required_keys = () if connection.skip_auth else _CREDENTIALS.get(connection.mechanism, _USERNAME_AND_PASSWORD)
        for key in required_keys:
            if not getattr(connection, key):
                yield Problem(f"{path}.{key}", f"is needed for mechanism {connection.mechanism}; add it")
        if connection.mechanism != "NO_AUTH" and not connection.protocol.startswith("SASL"):
            yield Problem(
                f"{path}.protocol",
                f"{connection.protocol} does not support {connection.mechanism}; use SASL_PLAINTEXT or SASL_SSL",
            )
        yield from _mechanism_problems(path, connection)
        yield from _certificate_problems(path, connection)
        if source.schema_registry is not None:
            yield from _registry_problems(f"sources[{index}].schema_registry", source.schema_registry)
    sink, path = config.sink.connection_params, "sink.connection_params"
    yield from _certificate_problems(path, sink)
    for key in ("root_ca", "client_cert"):
        if getattr(sink, key) and not sink.secure:
            yield Problem(f"{path}.{key}", "applies to secure: true only; add that, or remove it")


def _mechanism_problems(path: str, connection: KafkaConnection) -> Iterator[Problem]:
    """Yield the problems of keys that belong to one mechanism."""
    for mechanism, key in TOKEN_KEYS.items():
        if getattr(connection, key) and connection.mechanism == "NO_AUTH":
            yield Problem(f"{path}.mechanism", f"is missing beside {key}; add mechanism: {mechanism}, or remove {key}")
    if connection.oauth:
        yield from _oauth_problems(f"{path}.oauth", connection.oauth)
    if connection.mechanism == "AWS_MSK_IAM" and not connection.skip_auth:
        if connection.protocol == "SASL_PLAINTEXT":
            yield Problem(f"{path}.protocol", "Amazon MSK takes AWS_MSK_IAM over TLS only; use SASL_SSL")
        if region_of(connection) is None:
            yield Problem(f"{path}.aws.region", "is not in the brokers' names; add it")
        if connection.aws and connection.aws.profile and connection.aws.role_arn:
            yield Problem(f"{path}.aws.role_arn", "and profile exclude each other; keep one")


def _oauth_problems(path: str, client: OAuthClient) -> Iterator[Problem]:
    yield from _address_problems(
        f"{path}.token_url", client.token_url, "https://host/path", "client_id and client_secret"
    )
    for name, value in client.extensions.items():
        if "," in value or not name.isalpha():
            yield Problem(f"{path}.extensions", f"{name!r}: a name has letters only, and a value no comma; correct it")


def _certificate_problems(path: str, connection: KafkaConnection | ClickHouseConnection) -> Iterator[Problem]:
    if bool(connection.client_cert) != bool(connection.client_key):
        missing = "client_key" if connection.client_cert else "client_cert"
        yield Problem(f"{path}.{missing}", "is missing; set the client's certificate and its key together")


def _registry_problems(path: str, registry: SchemaRegistry) -> Iterator[Problem]:
    """Yield a problem for an address that is none, and for credentials of which one half is missing or one too many."""
    for url in registry.urls or ("",):
        yield from _address_problems(f"{path}.url", url, "https://host:port", "api_key and api_secret")
    if registry.bearer_token and registry.api_key:
        yield Problem(f"{path}.bearer_token", "is there beside api_key; remove one of them")
    if bool(registry.client_cert) != bool(registry.client_key):
        yield Problem(f"{path}.client_cert", "needs client_key, and that needs client_cert; add the other one")


def _address_problems(path: str, url: str, form: str, keys: str) -> Iterator[Problem]:
    """Yield a problem for an address that is none, or has a user.

    form: of an address.
    keys: those for the user.
    """
    if not _is_address(url):
        yield Problem(path, f"{url!r} is not an address; write {form}")
    elif urlsplit(url).username or urlsplit(url).password:
        yield Problem(path, f"holds a user; write it into {keys}")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # The port is checked only when it is read.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
