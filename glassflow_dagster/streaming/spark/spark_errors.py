"""What a failed query says to a person: one line, and what to do."""

import re
from collections.abc import Iterable

from py4j.protocol import Py4JError, Py4JJavaError

from glassflow_dagster.streaming.checkpoint.checkpoint import RESTORE

# The last line of a Python traceback that carries one of this project's own errors.
_OWN_ERROR = re.compile(r"glassflow_dagster\.[\w.]+: (?P<text>[^\n]+)")
# How Java and Python write what was raised, and Java what was behind it; one without a message says nothing.
_RAISED = re.compile(r"^(?:: )?(?P<text>[\w.$]*(?:Error|Exception): [^\n]+)", re.MULTILINE)
_CAUSED_BY = re.compile(r"^Caused by: (?P<text>[\w.$]+: [^\n]+)", re.MULTILINE)
# Behind it comes the query's plan, pages of it.
_PLAN = "=== Streaming Query ==="
_TRACEBACK = "Traceback (most recent call last):"

_NO_MEMORY = (
    re.compile(
        r"OutOfMemoryError: (Java heap space|GC overhead limit exceeded)"
        # Beside the heap Java has as much again, for what goes to Python.
        r"|OutOfDirectMemoryError|OutOfMemoryException: Failure allocating buffer|Cannot reserve \d+ bytes of direct"
        # What a query says that was under way when Spark ended itself over one of these.
        r'|SparkContext\.dagScheduler\(\)" is null'
    ),
    (
        "Spark's JVM has too little memory; give it more (spark.driver.memory, which is 1g unless it is set, or the "
        "workers of a cluster spark.executor.memory), then start again"
    ),
)
_DATA_LOSS = re.compile(r"(data may have been lost|OffsetOutOfRange|KAFKA_DATA_LOSS|failOnDataLoss)", re.IGNORECASE)
# As Java's client and as librdkafka say it.
_UNKNOWN_TOPIC = re.compile(r"UnknownTopicOrPartition|Unknown topic or partition")
_NO_ANSWER = re.compile(r"(TimeoutException|DisconnectException|TimeoutExpired)")
# Before those that want of memory may look like.
_KNOWN = (
    _NO_MEMORY,
    (
        _DATA_LOSS,
        (
            "Kafka no longer has offsets that were not read yet, or the topic was recreated: records are lost. Look at "
            "the topic's retention; to go on without them, run the pipeline with --accept-loss"
        ),
    ),
    (
        _UNKNOWN_TOPIC,
        "the topic, or a partition of it, is gone; bring it back, then start the pipeline again",
    ),
    (
        re.compile(r"(?:Topic|Group)AuthorizationException: [^\n]+"),
        (
            "Kafka's brokers do not let the user read the topic, or not any more; grant READ and DESCRIBE on it, "
            "and READ on consumer groups that begin with spark-kafka-source, then start the pipeline again, which goes "
            "on where it stopped"
        ),
    ),
    (
        re.compile(r"(SaslAuthenticationException|UnsupportedSaslMechanismException)"),
        (
            "Kafka's brokers refuse the user; correct connection_params.username, password and mechanism, then start "
            "the pipeline again, which goes on where it stopped"
        ),
    ),
    (
        re.compile(r"(SslAuthenticationException|SSLHandshakeException|SSLPeerUnverifiedException)"),
        (
            "Kafka's brokers and the pipeline cannot verify each other's certificate; correct "
            "connection_params.root_ca, client_cert and client_key, then start the pipeline again"
        ),
    ),
    (
        _NO_ANSWER,
        "Kafka did not answer in time; check the brokers, the pipeline goes on where it stopped when started again",
    ),
    (
        re.compile(r"(CANNOT_LOAD_STATE_STORE|ChecksumException|Checksum error)"),
        f"a file of the state in the checkpoint is damaged or missing; {RESTORE}",
    ),
    (
        re.compile(r"(Read-only file system|Permission denied|AccessDeniedException|Input/output error)"),
        "the state folder cannot be written; fix the disk or the rights, then start the pipeline again",
    ),
    (
        re.compile(r"(No space left on device|Disk quota exceeded)"),
        "the disk is full; make room for the state folder, then start the pipeline again",
    ),
    (
        re.compile(r"Python worker exited unexpectedly"),
        (
            "a Python worker of Spark's ended: killed, or out of memory; start the pipeline again, which goes on where "
            "it stopped"
        ),
    ),
)
_AT_START = (
    _NO_MEMORY,
    (
        re.compile(r"JAVA_GATEWAY_EXITED"),
        "Java ended before Spark was there; why, it said on stderr, which of a driver in the background is driver.log",
    ),
    (re.compile(r"stopped SparkContext"), "Spark ended while it started, as it does where its cluster does not answer"),
)


def explain_failure(error: BaseException, rest: str = "; spark.log beside the checkpoint has the rest") -> str:
    """Find what went wrong in an exception of Spark's; falls back to what was raised first, and says where the rest is.

    To be asked while the JVM lives, which has the texts.
    """
    text = _text(error)
    if own := _OWN_ERROR.search(text):
        return own["text"].strip()
    return _known(_KNOWN, text) or f"{_reason(error, text.partition(_PLAN)[0])}{rest}"


def may_lack_records(error: BaseException) -> bool:
    """Give whether Spark may have missed a topic, a partition, or records that were there."""
    text = _text(error)
    # Of a topic that is deleted under a reader the brokers say nothing more.
    return any(pattern.search(text) for pattern in (_DATA_LOSS, _UNKNOWN_TOPIC, _NO_ANSWER))


def explain_start(error: BaseException) -> str:
    """Find why a session of Spark's did not start."""
    text = _text(error)
    return _known(_AT_START, text) or _reason(error, text)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except (Py4JError, ConnectionError):
        # Of what Java raised only Java has the text.
        return "Spark's JVM ended before it said why"


def _known(patterns: Iterable[tuple[re.Pattern[str], str]], text: str) -> str | None:
    for pattern, remedy in patterns:
        if found := pattern.search(text):
            return f"{remedy} ({found[0]})"
    return None


def _reason(error: BaseException, text: str) -> str:
    causes = [cause.strip() for cause in _CAUSED_BY.findall(text) if not cause.endswith(_TRACEBACK)]
    if causes:
        return str(causes[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else "no reason given"
    # What Python raised, or Java below it, comes last; before it is the way there.
    if (isinstance(error, Py4JJavaError) or first.endswith(_TRACEBACK)) and (raised := _RAISED.findall(text)):
        return str(raised[-1]).strip()
    return f"{type(error).__name__}: {first}"
