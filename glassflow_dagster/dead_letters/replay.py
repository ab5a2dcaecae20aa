"""Sends dead letters to their pipeline once more, each of them once.

They go to the pipeline's own replay topic, in transactions of a producer whose name is the topic's: a second replay
of the pipeline ends the first one's right to send, and what that had not committed was never there. What has been sent
is what lies in the topic; `glassflow_replays` only saves reading the whole of it. A replay first marks what an
interrupted one had sent and not marked, and then sends what has no mark.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from glassflow_dagster.bookkeeping.dead_letters import DeadLetter
from glassflow_dagster.bookkeeping.ledger import newest_checkpoint
from glassflow_dagster.bookkeeping.replays import ReplayMark, insert_replay_marks, last_replay_offset
from glassflow_dagster.bookkeeping.schema import NEVER
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import asked
from glassflow_dagster.clickhouse.server_run import read_server_run
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.dead_letters.letters import DeadLetterStore
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.client import client_settings
from glassflow_dagster.kafka.errors import KafkaUnreachable
from glassflow_dagster.kafka.records import read_to_end
from glassflow_dagster.kafka.replay_headers import Replay, read_replay, without_replay
from glassflow_dagster.kafka.replay_topic import REPLAY_PARTITION, ensure_replay_topic
from glassflow_dagster.kafka.topics import offsets

Report = Callable[[str], None]

# Letters of one transaction: an interrupted one is sent again, a small one costs a round trip to the brokers.
LETTERS_AT_ONCE = 500
BYTES_AT_ONCE = 16 * 1024 * 1024

# Seconds; a letter is never there without its mark, or it would be sent again.
_OUTLIVES = 24 * 3600
# Seconds; how long a mark is tried, as a driver does with its inserts.
_RETRY_SECONDS = 300.0
# Seconds; the brokers end a transaction by themselves after a minute.
_TRANSACTION_SECONDS = 30.0
# How the brokers say that a newer producer of the same name is there.
_FENCED = frozenset({
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
})  # fmt: skip
# What librdkafka takes at most; the topic's own limit is the one that counts.
_LARGEST_RECORD = 1_000_000_000


@dataclass(frozen=True)
class Replayed:
    """What became of the letters that were chosen."""

    sent: int
    already_sent: int
    too_often: int
    of_earlier_checkpoint: int
    of_pairs: int

    def lines(self, max_attempts: int) -> Iterator[str]:
        """Say it to a person."""
        yield f"sent again: {self.sent:,}"
        if self.already_sent:
            yield f"skipped: {self.already_sent:,} that were sent before"
        if self.too_often:
            yield (
                f"skipped: {self.too_often:,} that failed again after {_times(max_attempts)} "
                "(dead_letters.max_attempts)"
            )
        if self.of_earlier_checkpoint:
            yield (
                f"skipped: {self.of_earlier_checkpoint:,} of an earlier checkpoint; the pipeline has read its topic "
                "anew since, and these records with it"
            )
        if self.of_pairs:
            yield (
                f"skipped: {self.of_pairs:,} of single pairs of a join (match: all); their left event sent again would "
                "double the rows of its other pairs"
            )


def _times(attempts: int) -> str:
    return "1 replay" if attempts == 1 else f"{attempts} replays"


def replay(config: PipelineConfig, condition: str, report: Report) -> Replayed:
    """Send the letters that a condition chooses, but those that were sent before or failed too often.

    Safe to interrupt and to repeat. Raises `WrongCondition`, `TopicMissing`, or `GlassflowError` for servers that do
    not do their part.
    """
    box = DeadLetterStore.open(config)
    checkpoint_id = newest_checkpoint(box.client, box.database, box.pipeline_id)
    attempts = config.dead_letters.max_attempts
    # A left event goes through the join as a whole, and of several pairs only one was refused.
    pairs = "passed_dedup" if config.join and config.join.match == "all" else "false"
    mine = "toString(checkpoint_id) = {checkpoint_id:String}"
    query = (
        f"SELECT countIf(NOT {mine}), countIf({mine} AND replayed), "
        f"countIf({mine} AND NOT replayed AND attempt >= {attempts}), "
        f"countIf({mine} AND NOT replayed AND attempt < {attempts} AND {pairs}) FROM ({box.chosen(condition)})"
    )
    # Asked first: a condition that is wrong is said before anything is done.
    box.ask(query, condition, checkpoint_id=checkpoint_id)
    ensure_replay_topic(config)
    sender = _Sender(config)
    begun = asked(box.client, lambda: read_server_run(box.client))
    inserter = Inserter(box.client, _RETRY_SECONDS, lambda _: None, begun=begun)
    _mark(inserter, box, config, _unmarked(box, config))
    earlier, already, too_often, of_pairs = box.ask(query, condition, checkpoint_id=checkpoint_id)[0]
    of_checkpoint = f"checkpoint_id = '{checkpoint_id}'"
    waiting = f"({condition}\n) AND NOT replayed AND attempt < {attempts} AND {of_checkpoint} AND NOT {pairs}"
    sent = 0
    for letters in _groups(box.read(waiting)):
        _mark(inserter, box, config, sender.send(letters))
        sent += len(letters)
        report(f"sent {sent:,} dead letters to {config.replay_topic}")
    return Replayed(sent, already, too_often, earlier, of_pairs)


def _unmarked(box: DeadLetterStore, config: PipelineConfig) -> list[ReplayMark]:
    """Find what lies in the topic behind the last mark: an interrupted replay sent it."""
    connection, topic = config.source.connection_params, config.replay_topic
    there = offsets(connection, topic)[REPLAY_PARTITION]
    last = last_replay_offset(box.client, box.database, box.pipeline_id)
    # A topic that was recreated begins again.
    first = last + 1 if last is not None and last < there.high else there.low
    # As the stream reads it: what a replay left behind half done is sent, where it is read.
    records = read_to_end(connection, topic, REPLAY_PARTITION, max(first, there.low), config.source.isolation)
    found = ((read_replay(record.headers), record.offset) for record in records)
    return [_mark_of(replay, offset, NEVER) for replay, offset in found if replay is not None]


def _mark(inserter: Inserter, box: DeadLetterStore, config: PipelineConfig, sent: list[ReplayMark]) -> None:
    """Write down what was sent; a mark that is there twice means the same."""
    for first in range(0, len(sent), LETTERS_AT_ONCE):
        part = sent[first : first + LETTERS_AT_ONCE]
        offsets_sent = part[0].replay_offset, part[-1].replay_offset
        token = Token.of_replay_marks(config.replay_topic, part[0].checkpoint_id, *offsets_sent)
        insert_replay_marks(inserter, box.database, config.pipeline_id, part, token)


def _mark_of(replay: Replay, replay_offset: int, expires_at: int) -> ReplayMark:
    return ReplayMark(
        checkpoint_id=replay.checkpoint_id,
        topic=replay.topic,
        partition=replay.partition,
        offset=replay.offset,
        attempt=replay.attempt,
        replay_offset=replay_offset,
        expires_at=expires_at,
    )


def _groups(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Cut letters into what one transaction takes."""
    group: list[DeadLetter] = []
    size = 0
    for letter in letters:
        if group and (len(group) == LETTERS_AT_ONCE or size + len(letter.value or b"") > BYTES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(letter)
        size += len(letter.value or b"")
    if group:
        yield group


class _Sender:
    """The one producer that may send to a pipeline's replay topic; making it ends every other's right to."""

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._producer = Producer({
            **client_settings(config.source.connection_params),
            "transactional.id": config.replay_topic,
            "message.max.bytes": _LARGEST_RECORD,
        })  # fmt: skip
        with self._explaining():
            self._producer.init_transactions(_TRANSACTION_SECONDS)

    def send(self, letters: list[DeadLetter]) -> list[ReplayMark]:
        """Send letters, all of them or none; gives where they are in the topic."""
        sent: list[ReplayMark] = []
        refused: list[str] = []
        with self._explaining():
            self._producer.begin_transaction()
            try:
                for letter in letters:
                    self._produce(letter, sent, refused)
                self._await_answers()
                _require_all_taken(refused)
                self._producer.commit_transaction(_TRANSACTION_SECONDS)
            except BaseException:
                self._abort()
                raise
        return sorted(sent, key=lambda entry: entry.replay_offset)

    def _produce(self, letter: DeadLetter, sent: list[ReplayMark], refused: list[str]) -> None:
        again = Replay(
            checkpoint_id=letter.checkpoint_id,
            topic=letter.origin_topic,
            partition=letter.origin_partition,
            offset=letter.origin_offset,
            attempt=letter.attempt + 1,
            passed_dedup=letter.passed_dedup,
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent.append(_mark_of(again, message.offset() or 0, min(letter.expires_at + _OUTLIVES, NEVER)))
            else:
                refused.append(self._not_taken(letter, error))

        try:
            self._producer.produce(
                self._config.replay_topic,
                value=letter.value,
                key=letter.key,
                headers=[*without_replay(letter.headers), *again.headers()],
                partition=REPLAY_PARTITION,
                timestamp=max(letter.timestamp_ms, 0),
                on_delivery=delivered,
            )
        except KafkaException as error:
            raise GlassflowError(self._not_taken(letter, error.args[0])) from error

    def _not_taken(self, letter: DeadLetter, error: KafkaError) -> str:
        where, topic = f"{letter.topic}/{letter.partition}/{letter.offset}", self._config.replay_topic
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return (
                f"topic {topic!r} does not take the dead letter of {where}: it is too large; raise max.message.bytes "
                "of the topic, or leave it out with --where"
            )
        return f"topic {topic!r} does not take the dead letter of {where}: {error.str()}; fix that and replay again"

    def _await_answers(self) -> None:
        # Not flush: when a newer producer ends this one, it fails without saying so.
        deadline = time.monotonic() + _TRANSACTION_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(0.1)

    def _abort(self) -> None:
        """What is not aborted now is aborted by the next replay's start, or by the brokers after a minute."""
        with suppress(KafkaException):
            self._producer.abort_transaction(_TRANSACTION_SECONDS)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() in _FENCED:
                raise GlassflowError(
                    f"another replay of {self._config.pipeline_id} was started meanwhile and goes on with the rest; "
                    "nothing is lost and nothing sent twice"
                ) from raised
            if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise GlassflowError(
                    f"this user may not send in transactions; grant WRITE and DESCRIBE on the transactional id "
                    f"{self._config.replay_topic!r}"
                ) from raised
            raise KafkaUnreachable(
                f"Kafka's brokers did not confirm what was sent to {self._config.replay_topic!r} ({error.str()}); look "
                "after them and replay again: what was sent is found"
            ) from raised


def _require_all_taken(refused: list[str]) -> None:
    if refused:
        raise GlassflowError(refused[0])
