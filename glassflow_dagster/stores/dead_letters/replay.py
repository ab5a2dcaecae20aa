"""Replay of dead letters: each is sent to its pipeline again, exactly once per attempt.

They are sent to the pipeline's replay topic, in Kafka transactions whose transactional id is the topic's name: a second
replay of the pipeline fences the first one's producer, whose open transaction is aborted. The replay topic decides
which dead letters have been sent; the marks in `glassflow_replays` only save reading the whole topic. A replay first
adds the marks that an interrupted one has not written, then sends the dead letters without a mark.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.dead_letter_marks import ReplayMark, insert_replay_marks, last_replay_offset
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DeadLetter
from glassflow_dagster.stores.bookkeeping.ledger import newest_checkpoint
from glassflow_dagster.stores.bookkeeping.schema import NEVER
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import translate_errors
from glassflow_dagster.stores.clickhouse.server_run import read_server_run
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore
from glassflow_dagster.stores.kafka.client import client_settings
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable
from glassflow_dagster.stores.kafka.records import read_to_end
from glassflow_dagster.stores.kafka.replay_headers import Replay, read_replay, without_replay
from glassflow_dagster.stores.kafka.replay_topic import (
    ANY_TIMESTAMP,
    MAX_RECORD_SETTING,
    REPLAY_PARTITION,
    TIMESTAMP_SETTINGS,
    ensure_replay_topic,
)
from glassflow_dagster.stores.kafka.topics import offsets, topic_ids

Report = Callable[[str], None]

# Limits of one transaction: an interrupted one is sent again as a whole, small ones cost more round trips.
DEAD_LETTERS_PER_TRANSACTION = 500
BYTES_PER_TRANSACTION = 16 * 1024 * 1024

# Seconds by which a mark outlives its dead letter: a dead letter whose mark expired first could be sent again.
_MARK_OUTLIVES_SECONDS = 24 * 3600
# Seconds; time limit of the insert of marks, like that of a driver's inserts.
_RETRY_SECONDS = 300.0
# Seconds; time limit of each step. The brokers abort an open transaction after a minute.
_TRANSACTION_SECONDS = 30.0
# Errors of a producer after a newer one with the same transactional id has started.
_FENCED = frozenset({
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
})  # fmt: skip
# librdkafka's maximum, so that the topic's own limit decides.
_LARGEST_RECORD = 1_000_000_000


class ReplayFenced(GlassflowError):
    """Another replay of the pipeline has started, and has ended this one; the other one need not send the same."""


@dataclass(frozen=True)
class ReplayResult:
    """Numbers of the selected dead letters: sent, and skipped by reason.

    of_earlier_checkpoint: the records were read again by the newest checkpoint.
    of_pairs: dead letters of single rows of a joined event that has more than one, see `lines`.
    """

    sent: int
    already_sent: int
    too_often: int
    of_earlier_checkpoint: int
    of_pairs: int

    def lines(self, max_attempts: int) -> Iterator[str]:
        """Yield the result as lines for people, without reasons that did not occur."""
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
                f"skipped: {self.of_earlier_checkpoint:,} of an earlier checkpoint; the pipeline has since read its "
                "topic again, with these records"
            )
        if self.of_pairs:
            yield (
                f"skipped: {self.of_pairs:,} of single rows of a join (match: all); replaying their left event would "
                "duplicate its other rows"
            )


def _times(attempts: int) -> str:
    return "1 replay" if attempts == 1 else f"{attempts} replays"


def replay(config: PipelineConfig, condition: str, report: Report) -> ReplayResult:
    """Send the dead letters that fulfil a condition, except those that were sent before or failed too often.

    May be interrupted and repeated. report: receives progress. Raises `WrongCondition`, `TopicMissing`, and another
    `GlassflowError` when Kafka or ClickHouse fails.
    """
    store = DeadLetterStore.open(config)
    checkpoint_id = newest_checkpoint(store.client, store.database, store.pipeline_id)
    max_attempts = config.dead_letters.max_attempts
    # With match: all, of the join or of the sink, a left event makes several rows. A dead letter with passed_dedup, or
    # of only one table, is one of them; replaying its left event would produce the others again.
    is_pair = "passed_dedup" if config.join and config.join.match == "all" else "false"
    if config.join:
        is_pair = f"({is_pair} OR only_table != '')"
    is_newest = "toString(checkpoint_id) = {checkpoint_id:String}"
    # Numbers of the dead letters that are not sent, by reason; a dead letter with several reasons counts for the first.
    skipped_query = (
        f"SELECT countIf(NOT {is_newest}), countIf({is_newest} AND replayed), "
        f"countIf({is_newest} AND NOT replayed AND attempt >= {max_attempts}), "
        f"countIf({is_newest} AND NOT replayed AND attempt < {max_attempts} AND {is_pair}) "
        f"FROM ({store.query_for(condition)})"
    )
    # Run once before anything is changed, so that a wrong condition is reported at once.
    store.fetch(skipped_query, condition, checkpoint_id=checkpoint_id)
    ensure_replay_topic(config)
    sender = ReplaySender(config)
    marker = ReplayMarker.of(store, config)
    # An interrupted replay may have sent dead letters without marking them.
    marker.mark(marker.sent_without_mark())
    of_earlier_checkpoint, already_sent, too_often, of_pairs = store.fetch(
        skipped_query, condition, checkpoint_id=checkpoint_id
    )[0]
    of_checkpoint = f"checkpoint_id = '{checkpoint_id}'"
    # A comment at the end of the condition must not swallow the parenthesis, hence the line break.
    replayable = f"({condition}\n) AND NOT replayed AND attempt < {max_attempts} AND {of_checkpoint} AND NOT {is_pair}"
    sent = 0
    for group in _groups(store.read(replayable)):
        marker.mark(sender.send(group))
        sent += len(group)
        report(f"sent {sent:,} dead letters to {config.replay_topic}")
    return ReplayResult(
        sent=sent,
        already_sent=already_sent,
        too_often=too_often,
        of_earlier_checkpoint=of_earlier_checkpoint,
        of_pairs=of_pairs,
    )


Sent = tuple[Replay, int, int]  # what was sent, its offset in the replay topic, when its mark expires (s since 1970)


@dataclass(frozen=True)
class ReplayMarker:
    """Writes the marks of sent dead letters. topic_id: the replay topic's, '' where the brokers give none."""

    store: DeadLetterStore
    config: PipelineConfig
    inserter: Inserter
    topic_id: str

    @classmethod
    def of(cls, store: DeadLetterStore, config: PipelineConfig) -> "ReplayMarker":
        """Return the marker of a pipeline, whose replay topic exists."""
        server_run = translate_errors(store.client, lambda: read_server_run(store.client))
        begin = BatchBegin(server_run)
        inserter = Inserter(store.client, retry_seconds=_RETRY_SECONDS, report=lambda _: None, begin=begin)
        ids = topic_ids(config.source.connection_params, [config.replay_topic])
        return cls(store, config, inserter, ids.get(config.replay_topic, ""))

    def sent_without_mark(self) -> Iterator[Sent]:
        """Yield the records of the replay topic after its last mark: an interrupted replay has sent them.

        That is the whole topic where it was deleted and created again, or all marks are of a version without its id.
        """
        connection, topic = self.config.source.connection_params, self.config.replay_topic
        available = offsets(connection, topic)[REPLAY_PARTITION]
        last = last_replay_offset(self.store.client, self.store.database, self.store.pipeline_id, self.topic_id)
        # Brokers that give no ids do not tell a recreated topic, whose offsets begin again.
        first = last + 1 if last is not None and last < available.high else available.low
        # With the isolation level of the stream: a record counts as sent if and only if the stream reads it.
        isolation = self.config.source.isolation
        for record in read_to_end(connection, topic, REPLAY_PARTITION, max(first, available.low), isolation):
            replay = read_replay(record.headers)
            # Without replay headers, another producer wrote the record. The headers do not say when the dead letter
            # expires, so its mark never does.
            if replay is not None:
                yield replay, record.offset, NEVER

    def mark(self, sent: Iterable[Sent]) -> None:
        """Insert marks of dead letters that were sent, in the order of their offsets.

        A mark that an interrupted replay causes to be inserted twice is harmless.
        """
        remaining = iter(sent)
        while part := [self._mark_of(*each) for each in islice(remaining, DEAD_LETTERS_PER_TRANSACTION)]:
            offsets_sent = part[0].replay_offset, part[-1].replay_offset
            topic, checkpoint_id = self.config.replay_topic, part[0].checkpoint_id
            token = Token.of_replay_marks(topic, self.topic_id, checkpoint_id, *offsets_sent)
            insert_replay_marks(self.inserter, self.store.database, self.config.pipeline_id, part, token)

    def _mark_of(self, replay: Replay, replay_offset: int, expires_at: int) -> ReplayMark:
        return ReplayMark(
            checkpoint_id=replay.checkpoint_id,
            origin_batch_time_ms=replay.batch_time_ms,
            topic=replay.topic,
            partition=replay.partition,
            offset=replay.offset,
            item=replay.item,
            only_table=replay.only_table,
            attempt=replay.attempt,
            replay_offset=replay_offset,
            replay_topic_id=self.topic_id,
            expires_at=expires_at,
        )


def _groups(dead_letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Yield the dead letters in groups, one per transaction, within the limits of number and bytes of values.

    A value that is larger than the limit is a group of its own.
    """
    group: list[DeadLetter] = []
    size = 0
    for dead_letter in dead_letters:
        value_size = len(dead_letter.value or b"")
        if group and (len(group) == DEAD_LETTERS_PER_TRANSACTION or size + value_size > BYTES_PER_TRANSACTION):
            yield group
            group, size = [], 0
        group.append(dead_letter)
        size += value_size
    if group:
        yield group


class ReplaySender:
    """The transactional producer of a pipeline's replay topic; creating it fences all earlier ones."""

    def __init__(self, config: PipelineConfig) -> None:
        """Create the producer; raises `GlassflowError` when the brokers do not let it send in transactions."""
        self._config = config
        self._producer = Producer({
            **client_settings(config.source.connection_params),
            "transactional.id": config.replay_topic,
            "message.max.bytes": _LARGEST_RECORD,
            # The topic's limit counts compressed bytes, and so did that of the source topic.
            "compression.type": "gzip",
        })  # fmt: skip
        with self._explaining():
            self._producer.init_transactions(_TRANSACTION_SECONDS)

    def send(self, dead_letters: Iterable[DeadLetter]) -> list[Sent]:
        """Send dead letters in one transaction; return them in the order of their offsets in the topic.

        After an error, such as a dead letter that the topic rejects, the transaction is aborted and none is sent.
        """
        sent: list[Sent] = []
        failures: list[str] = []
        with self._explaining():
            self._producer.begin_transaction()
            try:
                for dead_letter in dead_letters:
                    self._produce(dead_letter, sent, failures)
                self._await_delivery()
                require_all_taken(failures)
                self._producer.commit_transaction(_TRANSACTION_SECONDS)
            except BaseException:
                self.abort()
                raise
        return sorted(sent, key=lambda entry: entry[1])

    def _produce(self, dead_letter: DeadLetter, sent: list[Sent], failures: list[str]) -> None:
        """Queue one dead letter; its delivery report adds it to `sent` or a message to `failures`."""
        next_attempt = Replay(
            checkpoint_id=dead_letter.checkpoint_id,
            topic=dead_letter.origin_topic,
            partition=dead_letter.origin_partition,
            offset=dead_letter.origin_offset,
            attempt=dead_letter.attempt + 1,
            passed_dedup=dead_letter.passed_dedup,
            item=dead_letter.origin_item,
            only_table=dead_letter.only_table,
            batch_time_ms=dead_letter.origin_batch_time_ms,
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                expires_at = min(dead_letter.expires_at + _MARK_OUTLIVES_SECONDS, NEVER)
                sent.append((next_attempt, message.offset() or 0, expires_at))  # a delivered one has an offset
            else:
                failures.append(self._not_taken(dead_letter, error))

        try:
            self._producer.produce(
                self._config.replay_topic,
                value=dead_letter.value,
                key=dead_letter.key,
                headers=[*without_replay(dead_letter.headers), *next_attempt.headers()],
                partition=REPLAY_PARTITION,
                # Negative when the record has none; for 0 librdkafka takes the current time.
                timestamp=max(dead_letter.timestamp_ms, 0),
                on_delivery=delivered,
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                # The producer has failed since, fenced for instance, and only a call about transactions tells why.
                self._producer.begin_transaction()
            raise GlassflowError(self._not_taken(dead_letter, error.args[0])) from error

    def _not_taken(self, dead_letter: DeadLetter, error: KafkaError) -> str:
        """Return the message for a dead letter that the topic rejects, with the remedy."""
        where, topic = dead_letter.position, self._config.replay_topic
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return (
                f"topic {topic!r} rejects the dead letter of {where}: it is too large; raise {MAX_RECORD_SETTING} of "
                "the topic, or exclude it with --where"
            )
        if error.code() == KafkaError.INVALID_TIMESTAMP:
            older, *newer = TIMESTAMP_SETTINGS
            return (
                f"topic {topic!r} rejects the dead letter of {where}: its timestamp, {dead_letter.timestamp_ms} "
                f"milliseconds since 1970, is too far from now; set {' and '.join(newer)} (before Kafka 3.6 {older}) "
                f"of the topic to {ANY_TIMESTAMP}, or exclude it with --where"
            )
        return f"topic {topic!r} rejects the dead letter of {where}: {error.str()}; fix that and replay again"

    def _await_delivery(self) -> None:
        """Wait for all delivery reports, for at most `_TRANSACTION_SECONDS`."""
        # Not flush(): it fails without a reason when a newer producer fences this one.
        deadline = time.monotonic() + _TRANSACTION_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(0.1)

    def abort(self) -> None:
        """Abort the transaction. Errors are ignored: the next replay or, after a minute, the brokers abort it."""
        with suppress(KafkaException):
            self._producer.abort_transaction(_TRANSACTION_SECONDS)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise Kafka's errors as `GlassflowError`s with a remedy.

        Another replay has fenced this producer, the user lacks the right, or the brokers did not answer.
        """
        try:
            yield
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() in _FENCED:
                raise ReplayFenced(
                    f"another replay of {self._config.pipeline_id} has started, so this one has stopped; repeat it "
                    "when the other one has ended: nothing is sent twice"
                ) from raised
            if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise GlassflowError(
                    f"this user may not send in transactions; grant WRITE and DESCRIBE on the transactional id "
                    f"{self._config.replay_topic!r}"
                ) from raised
            raise KafkaUnreachable(
                f"Kafka's brokers did not confirm the records sent to {self._config.replay_topic!r} ({error.str()}); "
                "check them and replay again: records already sent are skipped"
            ) from raised


def require_all_taken(failures: list[str]) -> None:
    """Raise the first failure, so that the transaction is aborted."""
    if failures:
        raise GlassflowError(failures[0])
