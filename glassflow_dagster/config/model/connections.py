"""Connections to Kafka and ClickHouse, and the schema registry of a topic."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from glassflow_dagster.config.model.fields import Part, Port, Text, empty_means


class KafkaConnection(Part):
    """The connection to the Kafka brokers."""

    brokers: Annotated[tuple[Text, ...], Field(min_length=1)]
    protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["NO_AUTH", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"] = "NO_AUTH"
    username: str | None = None
    password: SecretStr | None = None
    root_ca: str | None = Field(default=None, description="PEM certificate of the authority, plain or in base64")
    client_cert: str | None = Field(default=None, description="PEM certificate of this client, plain or in base64")
    client_key: SecretStr | None = Field(default=None, description="PEM private key of this client, plain or in base64")
    kerberos_service_name: str | None = None
    kerberos_realm: str | None = None
    kerberos_keytab: SecretStr | None = Field(default=None, description="the keytab in base64")
    kerberos_config: str | None = Field(default=None, description="the text of krb5.conf")
    skip_tls_verification: bool = False
    skip_auth: bool = False


class SchemaRegistry(Part):
    """A schema registry: values, or a header, begin with a schema id in Confluent's wire format.

    For `avro` the schemas are read from it. JSON is read without them: every record is checked against the declared
    fields, and the registry is not queried.
    """

    url: Text = Field(description="address; several with commas between them")
    api_key: str | None = None
    api_secret: SecretStr | None = None
    bearer_token: SecretStr | None = Field(default=None, description="token, in place of api_key and api_secret")
    root_ca: str | None = Field(default=None, description="PEM certificate of the authority, plain or in base64")
    client_cert: str | None = Field(default=None, description="PEM certificate of this client, plain or in base64")
    client_key: SecretStr | None = Field(default=None, description="PEM private key of this client, plain or in base64")

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses, of which any will do."""
        return tuple(url.strip() for url in self.url.split(",") if url.strip())


class ClickHouseConnection(Part):
    """The connection to ClickHouse, over HTTP.

    GlassFlow uses the native protocol on `port`. This project uses `http_port`; without it, the HTTP port for a native
    default port (9000 -> 8123, 9440 -> 8443), or else `port` itself.
    """

    host: Text
    port: Port
    http_port: Annotated[Port | None, empty_means(None)] = None
    database: Text
    username: Text
    password: SecretStr = SecretStr("")
    secure: bool = False
    skip_certificate_verification: bool = False
    root_ca: str | None = Field(default=None, description="PEM certificate of the authority, plain or in base64")
    client_cert: str | None = Field(default=None, description="PEM certificate of this client, plain or in base64")
    client_key: SecretStr | None = Field(default=None, description="PEM private key of this client, plain or in base64")

    @property
    def http(self) -> int:
        """The port for HTTP requests."""
        return self.http_port or {9000: 8123, 9440: 8443}.get(self.port, self.port)
