"""The pipelines that are being made, in memory: a password that was given stays here and is not sent to the browser.

They are few and small. The one that was not used for longest is forgotten for a new one.
"""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock, RLock

from glassflow_dagster.server.api.api_error import not_found
from glassflow_dagster.server.wizard.draft import Draft

MOST_DRAFTS = 32


@dataclass
class KeptDraft:
    """A draft.

    found: what was found by each step, for people.
    lock: held while an answer is examined.
    """

    draft: Draft = field(default_factory=Draft)
    found: dict[str, str] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock)


@dataclass
class DraftStore:
    """Keeps drafts by their ids, which cannot be guessed."""

    _drafts: "OrderedDict[str, KeptDraft]" = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def add(self) -> str:
        """Begin a draft; return its id."""
        draft_id = secrets.token_urlsafe(12)
        with self._lock:
            self._drafts[draft_id] = KeptDraft()
            while len(self._drafts) > MOST_DRAFTS:
                self._drafts.popitem(last=False)
        return draft_id

    def get(self, draft_id: str) -> KeptDraft:
        """Return a draft; raises `ApiError` for one that is forgotten."""
        with self._lock:
            kept = self._drafts.get(draft_id)
            if kept is None:
                raise not_found(
                    "these answers are not kept any more: the server was started again, or others have made many "
                    "pipelines since; begin a new pipeline"
                )
            self._drafts.move_to_end(draft_id)
            return kept

    def remove(self, draft_id: str) -> None:
        """Forget a draft."""
        with self._lock:
            self._drafts.pop(draft_id, None)
