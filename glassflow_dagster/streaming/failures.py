"""What a failed query says to a person: one line, and what to do."""

import re

from py4j.protocol import Py4JJavaError

from glassflow_dagster.streaming.checkpoint import RESTORE

# The last line of a Python traceback that carries one of this project's own errors.
_OWN_ERROR = re.compile(r"glassflow_dagster\.[\w.]+: (?P<text>[^\n]+)")
# How Java and Python write what was raised, and Java what was behind it.
_RAISED = re.compile(r"^(?:: )?(?P<text>[\w.$]*(?:Error|Exception): [^\n]+)", re.MULTILINE)
_CAUSED_BY = re.compile(r"^Caused by: (?P<text>[^\n]+)", re.MULTILINE)
# Behind it comes the query's plan, pages of it.
_PLAN = "=== Streaming Query ==="
_TRACEBACK = "Traceback (most recent call last):"

_KNOWN = (
    (
        re.compile(r"(data may have been lost|OffsetOutOfRange|KAFKA_DATA_LOSS|failOnDataLoss)", re.IGNORECASE),
        (
            "Kafka no longer has offsets that were not read yet, or the topic was made anew: records are lost. Look at "
            "the topic's retention; to go on without them, start with a new state folder and an empty table"
        ),
    ),
    (
        re.compile(r"UnknownTopicOrPartition"),
        "the topic, or a partition of it, is gone; bring it back, then start the pipeline again",
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
        re.compile(r"(TimeoutException|DisconnectException|TimeoutExpired)"),
        "Kafka did not answer in time; check the brokers, the pipeline goes on where it stopped when started again",
    ),
    (
        re.compile(r"(CANNOT_LOAD_STATE_STORE|ChecksumException|Checksum error)"),
        f"a file of the state in the checkpoint is damaged or missing; {RESTORE}",
    ),
    (
        re.compile(r"(Read-only file system|Permission denied|AccessDeniedException|Input/output error)"),
        "the state folder cannot be written; mend the disk or the rights, then start the pipeline again",
    ),
    (
        re.compile(r"(No space left on device|Disk quota exceeded)"),
        "the disk is full; make room for the state folder, then start the pipeline again",
    ),
    (
        re.compile(r"OutOfMemoryError[^\n]*"),
        (
            "Spark's JVM has too little memory; give it more (spark.driver.memory, which is 1g unless it is set), then "
            "start the pipeline again, which goes on where it stopped"
        ),
    ),
    (re.compile(r"JAVA_GATEWAY_EXITED"), "Java ended before Spark was there; what it said is above"),
    (re.compile(r"stopped SparkContext"), "Spark ended while it started, as it does where its cluster does not answer"),
)


def explain_failure(error: BaseException, rest: str = "; spark.log beside the checkpoint has the rest") -> str:
    """Find what went wrong in an exception of Spark's; falls back to what was raised first, and says where the rest is.

    To be asked while the JVM lives, which has the texts.
    """
    text = str(error)
    if own := _OWN_ERROR.search(text):
        return own["text"].strip()
    for pattern, remedy in _KNOWN:
        if found := pattern.search(text):
            return f"{remedy} ({found[0]})"
    return f"{_reason(error, text.partition(_PLAN)[0])}{rest}"


def _reason(error: BaseException, text: str) -> str:
    if causes := _CAUSED_BY.findall(text):
        return str(causes[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else "no reason given"
    # What Python raised, or Java below it, comes last; before it is the way there.
    if (isinstance(error, Py4JJavaError) or first.endswith(_TRACEBACK)) and (raised := _RAISED.findall(text)):
        return str(raised[-1]).strip()
    return f"{type(error).__name__}: {first}"
