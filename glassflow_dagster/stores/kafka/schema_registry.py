"""Reads schemas from a schema registry with Confluent's HTTP interface, for `infer`; drivers read them in the JVM."""

import base64
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from glassflow_dagster.definition.certificates import read_pem, read_private_key
from glassflow_dagster.definition.model.connections import SchemaRegistry
from glassflow_dagster.errors import GlassflowError

_ANSWER_SECONDS = 10.0
# The limits of drivers (stream/scala/registry/RegistryClient.scala).
_MOST_REFERENCES = 500
MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema: its type (AVRO, PROTOBUF or JSON), its text, and the texts of those that it refers to, in order."""

    type: str
    text: str
    references: tuple[str, ...]


@dataclass
class RegistryReader:
    """Reads the schemas of a registry, each once."""

    registry: SchemaRegistry
    _known: dict[str, RegisteredSchema | None] = field(default_factory=dict)

    def schema(self, schema_id: str) -> RegisteredSchema | None:
        """Return the schema with an id (a number, or a UUID with hyphens); None where the registry does not know it.

        Raises `GlassflowError` where the registry does not answer, or refuses.
        """
        if schema_id not in self._known:
            kind = "guids" if "-" in schema_id else "ids"
            content = self._get(f"/schemas/{kind}/{schema_id}")
            self._known[schema_id] = None if content is None else self._registered(content)
        return self._known[schema_id]

    def _registered(self, content: Mapping[str, Any]) -> RegisteredSchema:
        references: dict[str, str] = {}
        self._collect(content, references, set())
        return RegisteredSchema(content.get("schemaType", "AVRO"), self._text(content), tuple(references.values()))

    def _collect(self, content: Mapping[str, Any], found: dict[str, str], asked: set[str]) -> None:
        """Add the schemas that one refers to, each after those that it refers to itself. asked: those looked up."""
        for reference in content.get("references") or ():
            subject, version = quote(str(reference["subject"]), safe=""), reference["version"]
            path = f"/subjects/{subject}/versions/{version}?deleted=true"
            if path in asked:
                continue
            asked.add(path)
            if len(asked) > _MOST_REFERENCES:
                raise self._too_large()
            referred = self._get(path)
            if referred is None:
                raise GlassflowError(
                    f"schema registry {self.registry.url}: does not have version {version} of "
                    f"{reference['subject']!r}, to which a schema refers; register it again"
                )
            self._collect(referred, found, asked)
            found[path] = self._text(referred)
            if sum(map(len, found.values())) > MOST_BYTES:
                raise self._too_large()

    def _text(self, content: Mapping[str, Any]) -> str:
        if not isinstance(content.get("schema"), str):
            raise self._no_registry()
        return str(content["schema"])

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the answer to a request; None for 404. Of several addresses, the first that answers counts."""
        problems = []
        for url in self.registry.urls:
            request = urllib.request.Request(url.rstrip("/") + path, headers=_headers(self.registry))  # noqa: S310
            try:
                # The scheme is http or https: a rule of the definition.
                with self._opener(url).open(request, timeout=_ANSWER_SECONDS) as answer:
                    body = answer.read(MOST_BYTES + 1)
                if len(body) > MOST_BYTES:
                    raise self._too_large()
                content = json.loads(body)
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    return None
                if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                    raise GlassflowError(
                        f"schema registry {url}: refuses the credentials ({error.code}); correct schema_registry"
                    ) from error
                problems.append(f"{url}: {error.code} {error.reason}")
            except (ValueError, RecursionError):
                raise self._no_registry() from None
            except (OSError, HTTPException) as error:
                problems.append(f"{url}: {getattr(error, 'reason', error)}")
            else:
                if not isinstance(content, dict):
                    raise self._no_registry()
                return content
        raise GlassflowError(
            f"the schema registry does not answer ({'; '.join(problems)}); start it, or correct its url"
        )

    def _no_registry(self) -> GlassflowError:
        return GlassflowError(
            f"schema registry {self.registry.url}: answers without a schema; is it a schema registry?"
        )

    def _too_large(self) -> GlassflowError:
        return GlassflowError(
            f"schema registry {self.registry.url}: answers with more than {MOST_BYTES // 1024**2} MiB, or "
            f"{_MOST_REFERENCES:,} references, for one schema; is it a schema registry? If it is, register a smaller "
            "schema, or one that refers to fewer others"
        )

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        context = self._context(url)
        return urllib.request.build_opener(
            RegistryRedirects, *([urllib.request.HTTPSHandler(context=context)] if context else [])
        )

    def _context(self, url: str) -> ssl.SSLContext | None:
        """Return the TLS settings; None for http."""
        if not url.startswith("https"):
            return None
        registry, place = self.registry, "schema_registry"
        authority = read_pem(f"{place}.root_ca", registry.root_ca) if registry.root_ca else None
        context = ssl.create_default_context(cadata=authority)
        if registry.client_cert and registry.client_key:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:  # Python reads them from a file only
                both.write(read_pem(f"{place}.client_cert", registry.client_cert) + "\n")
                both.write(read_private_key(f"{place}.client_key", registry.client_key))
                both.flush()
                context.load_cert_chain(both.name)
        return context


class RegistryRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but shows the credentials to the registry's own host only."""

    def redirect_request(self, req: Any, *rest: Any) -> urllib.request.Request | None:
        """Return the request to follow; None to follow none."""
        request = super().redirect_request(req, *rest)
        if request is not None and request.host != req.host:
            request.remove_header("Authorization")
        return request


def authorization(registry: SchemaRegistry) -> str | None:
    """Return the value of the header Authorization; None without credentials."""
    if registry.bearer_token:
        return f"Bearer {registry.bearer_token.get_secret_value().strip()}"
    if registry.api_key:
        secret = registry.api_secret.get_secret_value() if registry.api_secret else ""
        return "Basic " + base64.b64encode(f"{registry.api_key}:{secret}".encode()).decode()
    return None


def _headers(registry: SchemaRegistry) -> dict[str, str]:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    credentials = authorization(registry)
    return {**headers, "Authorization": credentials} if credentials else headers
