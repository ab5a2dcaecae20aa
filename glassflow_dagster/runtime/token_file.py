"""Files that hold a token which clients must send."""

from pathlib import Path

from glassflow_dagster.errors import GlassflowError


def read_token(file: Path) -> str:
    """Return the token that a file holds; raises `GlassflowError` for a file that cannot be read or is empty."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise GlassflowError(
            f"--token-file {file}: cannot be read ({error}); write the token into it, in ASCII"
        ) from None
    if not text:
        raise GlassflowError(f"--token-file {file}: is empty; write the token into it")
    return text
