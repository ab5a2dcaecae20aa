"""How to reach Kafka, a schema registry and ClickHouse."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from glassflow_dagster.config.model.fields import Part, Port, Text, empty_means


class KafkaConnection(Part):
    """How to reach the brokers."""

    brokers: Annotated[tuple[Text, ...], Field(min_length=1)]
    protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["NO_AUTH", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"] = "NO_AUTH"
    username: str | None = None
    password: SecretStr | None = None
    root_ca: str | None = Field(default=None, description="PEM of the authority, in base64 or as it is")
    client_cert: str | None = Field(default=None, description="PEM of this client's certificate, base64 or as it is")
    client_key: SecretStr | None = Field(default=None, description="PEM of its private key, base64 or as it is")
    kerberos_service_name: str | None = None
    kerberos_realm: str | None = None
    kerberos_keytab: SecretStr | None = Field(default=None, description="the keytab in base64")
    kerberos_config: str | None = Field(default=None, description="the text of krb5.conf")
    skip_tls_verification: bool = False
    skip_auth: bool = False


class SchemaRegistry(Part):
    """That records carry the id of a schema before their JSON, as Confluent's serializers write it.

    The registry itself is not asked: every record is held against the declared fields.
    """

    url: Text
    api_key: str | None = None
    api_secret: SecretStr | None = None


class ClickHouseConnection(Part):
    """How to reach ClickHouse, over HTTP.

    GlassFlow speaks the native protocol on `port`; here `http_port` counts, and where it is left out, the port that
    belongs to a native default (9000 -> 8123, 9440 -> 8443).
    """

    host: Text
    port: Port
    http_port: Annotated[Port | None, empty_means(None)] = None
    database: Text
    username: Text
    password: SecretStr = SecretStr("")
    secure: bool = False
    skip_certificate_verification: bool = False
    root_ca: str | None = Field(default=None, description="PEM of the authority, in base64 or as it is")
    client_cert: str | None = Field(default=None, description="PEM of this client's certificate, base64 or as it is")
    client_key: SecretStr | None = Field(default=None, description="PEM of its private key, base64 or as it is")

    @property
    def http(self) -> int:
        """The port that HTTP requests go to."""
        return self.http_port or {9000: 8123, 9440: 8443}.get(self.port, self.port)
