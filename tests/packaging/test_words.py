"""Names that were replaced by a standard term do not come back: one word for one idea."""

import re
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parents[2]
# Old name -> new name. The old ones must not occur in code, tests or pages.
REPLACED = {
    "rehearsal": "warmup",
    "class_archive": "cds_archive",
    "trial": "evaluate",
    "pulse|Pulse": "heartbeat_writer, HeartbeatWriter",
    "Ticks": "ClockSource",
    "Pace": "BatchPacer",
    "LEADS|NO_LEAD|left_lead|right_lead": "max_event_time",
    "framing|unframe|unframed": "confluent_wire_format, strip_schema_id",
    "mark_sources": "add_source_index",
    "continuity": "consistency",
    "LetterBook|letters_of_rows": "DeadLetterBatch, dead_letters_of_rows",
    "books|require_books": "bookkeeping tables, require_bookkeeping_tables",
    "Superseded": "Fenced",
    "bisect": "block_writer",
    "incarnation|Incarnation": "checkpoint_id, CheckpointIdentity",
    "rows_there": "already_written",
    "goes_on": "is_active",
    "Accounts|unwritten": "RecordCounter, count_dropped",
    "half_done|known_keys|look_back|Past": "inflight_batch, dedup_keys, replay_dedup, LostCheckpoint",
    "kafka_side": "kafka_counts",
    "tend|recall|Seen": "ensure_if_wanted, load_cursor, Cursor",
    "clickhouse_front": "embedded_clickhouse",
    "Misfit|Placed|FirstSeen|FirstInEventTime": "ConversionError, RecordPosition, ProcessingTimeDedup, EventTimeDedup",
    "Own|thin": "ProductCase, baseline",
    "mend|mends|mended|made anew|Python door": "fix, fixed, rebuilt or recreated, Python bridge",
    "Verdict|TimedVerdict|goesOn": "DedupResult, TimedDedupResult, resultOf",
    "TickClock|TickOffset|TickStream|tick_every": "StreamClock, ClockOffset, ClockStream, trigger_every",
}
# Not YAML: definitions contain the words of events.
_TEXTS = {".py", ".scala", ".md", ".toml"}


def texts() -> dict[str, str]:
    """Return the text of every file under version control that the rule applies to, by path."""
    listed = subprocess.run(["git", "ls-files"], cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    files = (PROJECT / name for name in listed.splitlines())
    return {
        str(file.relative_to(PROJECT)): file.read_text()
        for file in files
        if file.suffix in _TEXTS and file.is_file() and file != Path(__file__)
    }


def test_no_replaced_word_is_left() -> None:
    instead_of = {word: instead for words, instead in REPLACED.items() for word in words.split("|")}
    # One pattern for all words: every text is read once.
    pattern = re.compile(rf"\b(?:{'|'.join(instead_of)})\b")
    found = texts()
    assert found
    left = [
        f"{name}: {match[0]} (write {instead_of[match[0]]})"
        for name, text in found.items()
        for match in pattern.finditer(text)
    ]
    assert left == []
