"""HTTP content codings of requests and answers: gzip, deflate, lz4 (frames), zstd.

Both directions work piece by piece. A client may send several frames one after the other (clickhouse-connect
sends one for each block).
"""

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol

import lz4.frame  # type: ignore[import-untyped]

from glassflow_dagster.local.clickhouse_front.errors import INCORRECT_DATA, NOT_IMPLEMENTED, engine_error

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_PIECE = 1 << 20  # bytes read at a time

_GZIP = 31  # zlib's number for the gzip container with its largest window


class Encoder(Protocol):
    """Compresses an answer piece by piece."""

    def compress(self, piece: bytes, /) -> bytes:
        """What can be sent of what was given so far."""

    def flush(self) -> bytes:
        """The rest."""


class _Lz4Encoder:
    def __init__(self) -> None:
        self._frame = lz4.frame.LZ4FrameCompressor()
        self._begun = False

    def compress(self, piece: bytes) -> bytes:
        start = b"" if self._begun else self._frame.begin()
        self._begun = True
        return bytes(start + self._frame.compress(piece))

    def flush(self) -> bytes:
        return self.compress(b"") + bytes(self._frame.flush())


_ENCODERS: dict[str, Callable[[], Encoder]] = {
    "lz4": _Lz4Encoder,
    "zstd": zstd.ZstdCompressor,
    "gzip": lambda: zlib.compressobj(wbits=_GZIP),
    "deflate": zlib.compressobj,
}

_DECODERS: dict[str, Callable[[], Any]] = {
    "lz4": lz4.frame.LZ4FrameDecompressor,
    "zstd": zstd.ZstdDecompressor,
    "gzip": lambda: zlib.decompressobj(wbits=_GZIP),
    "deflate": zlib.decompressobj,
}


def accepted_coding(header: str) -> str | None:
    """The first coding of an Accept-Encoding header that is known here."""
    names = (part.split(";")[0].strip().lower() for part in header.split(","))
    return next((name for name in names if name in _ENCODERS), None)


def encoder(coding: str) -> Encoder:
    """A fresh encoder for one of `accepted_coding`'s answers."""
    return _ENCODERS[coding]()


def decoded(body: IO[bytes], coding: str) -> Iterator[bytes]:
    """The content of a request body in pieces; `coding` is its Content-Encoding, empty for none.

    Raises EngineError for an unknown coding, broken data, or data that ends in the middle.
    """
    if coding in {"", "identity"}:
        while piece := body.read(_PIECE):
            yield piece
        return
    if coding not in _DECODERS:
        raise engine_error(
            NOT_IMPLEMENTED, f"Content-Encoding {coding!r} is not known; use one of {', '.join(_DECODERS)}"
        )
    try:
        yield from _decompressed(body, _DECODERS[coding])
    except (zlib.error, RuntimeError, zstd.ZstdError, EOFError) as error:
        raise engine_error(INCORRECT_DATA, f"the body is not valid {coding}: {error}") from error


def _decompressed(body: IO[bytes], new_decoder: Callable[[], Any]) -> Iterator[bytes]:
    decoder = None
    while piece := body.read(_PIECE):
        while piece:
            decoder = decoder or new_decoder()
            if content := decoder.decompress(piece):
                yield content
            piece = decoder.unused_data or b""
            if decoder.eof:
                decoder = None
            else:
                break
    if decoder is not None:
        raise EOFError("it ends in the middle")
