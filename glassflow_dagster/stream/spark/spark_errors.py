"""Explains failures of Spark in one line that says what to do."""

import re
from collections.abc import Iterable

from py4j.protocol import Py4JError, Py4JJavaError

from glassflow_dagster.definition.model.spark import DEFAULT_MEMORY, DRIVER_MEMORY
from glassflow_dagster.stream.checkpoint.restore import RESTORE

# The last line of a Python traceback, or the exception of a task, for one of this project's own errors.
_OWN_ERROR = re.compile(r"(?:glassflow_dagster\.[\w.]+|glassflow\.RegistryError): (?P<text>[^\n]+)")
# The lines in which Java and Python print an exception, and Java its cause; those without a message are of no use.
_RAISED = re.compile(r"^(?:: )?(?P<text>[\w.$]*(?:Error|Exception): [^\n]+)", re.MULTILINE)
_CAUSED_BY = re.compile(r"^Caused by: (?P<text>[\w.$]+: [^\n]+)", re.MULTILINE)
# After this line comes the query's plan, several pages.
_PLAN = "=== Streaming Query ==="
_TRACEBACK = "Traceback (most recent call last):"

# How a JVM that is no pool's gets more memory.
MORE_MEMORY = (
    f"give it more ({DRIVER_MEMORY}, {DEFAULT_MEMORY} by default, or spark.executor.memory for the workers of a "
    "cluster)"
)
_NO_MEMORY = re.compile(
    r"OutOfMemoryError: (Java heap space|GC overhead limit exceeded)"
    # Outside of the heap Java may use as much memory again, for the Arrow batches to Python.
    r"|OutOfDirectMemoryError|OutOfMemoryException: Failure allocating buffer|Cannot reserve \d+ bytes of direct"
    # The error of a query that was running when Spark shut itself down after one of the errors above.
    r'|SparkContext\.dagScheduler\(\)" is null'
)
# Two queries have written the same file of a checkpoint: this project's text, and Spark's.
_CONFLICT = re.compile(r"was written by another query|CONCURRENT_STREAM_LOG_UPDATE")
_DATA_LOSS = re.compile(r"(data may have been lost|OffsetOutOfRange|KAFKA_DATA_LOSS|failOnDataLoss)", re.IGNORECASE)
# The texts of Java's Kafka client and of librdkafka.
_UNKNOWN_TOPIC = re.compile(r"UnknownTopicOrPartition|Unknown topic or partition")
_NO_ANSWER = re.compile(r"(TimeoutException|DisconnectException|TimeoutExpired)")
# Known errors with their explanations, the first match wins. An object store that fails may cause errors that match the
# patterns after it.
_KNOWN_ERRORS = (
    (
        _CONFLICT,
        (
            "another driver uses this checkpoint, maybe on another host; if that one does not go on, start the "
            "pipeline again, which continues where it stopped"
        ),
    ),
    (
        # Of Hadoop's S3A and of AWS's SDK below it; of Google's connector; of Hadoop's ABFS, and of AzureFiles.scala.
        re.compile(
            r"AccessDeniedException: s3a://|\bAWS\w+Exception|UnknownStoreException|SdkClientException"
            r"|Error \w+ '?gs://|Upload failed for 'gs://|GoogleJsonResponseException"
            r"|AbfsRestOperationException|IOException: abfs://"
        ),
        (
            "the object store of the checkpoint refuses access or does not answer; check the store, its credentials "
            "and the network, then start the pipeline again, which continues where it stopped"
        ),
    ),
    (
        # Of Hadoop's client, for a name node or data nodes that are away, and for access that they refuse.
        re.compile(
            r"Call From .+ failed on|AccessControlException: Permission|SafeModeException|StandbyException|"
            r"BlockMissingException|could only be written to 0 of|All datanodes .+ are bad"
        ),
        (
            "HDFS, which has the checkpoint, refuses access or does not answer; check its nodes, the user's rights and "
            "the network, then start the pipeline again, which continues where it stopped"
        ),
    ),
    (
        _DATA_LOSS,
        (
            "Kafka no longer has offsets that were not read yet, or the topic was recreated: records are lost. Check "
            "the topic's retention; to continue without them, run the pipeline with --accept-loss"
        ),
    ),
    (_UNKNOWN_TOPIC, "the topic, or a partition of it, no longer exists; restore it, then start the pipeline again"),
    (
        re.compile(r"(?:Topic|Group)AuthorizationException: [^\n]+"),
        (
            "Kafka's brokers do not, or no longer, allow the user to read the topic; grant READ and DESCRIBE on it, "
            "and READ on consumer groups that begin with spark-kafka-source, then start the pipeline again, which "
            "continues where it stopped"
        ),
    ),
    (
        re.compile(r"(SaslAuthenticationException|UnsupportedSaslMechanismException)"),
        (
            "Kafka's brokers refuse the user; correct connection_params.username, password and mechanism, then start "
            "the pipeline again, which continues where it stopped"
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
        # Spark passes on only this text of the client's constructor, which requests the token.
        re.compile(r"(Failed to create new KafkaAdminClient|Failed to construct kafka consumer)"),
        (
            "Kafka's client could not be made; spark.log beside the checkpoint has the reason. With OAUTHBEARER or "
            "AWS_MSK_IAM it may have got no token: check connection_params.oauth or aws and their provider, else the "
            "brokers' names and connection_params.settings, then start the pipeline again, which continues where it "
            "stopped"
        ),
    ),
    (
        _NO_ANSWER,
        "Kafka did not answer in time; check the brokers, then start the pipeline again; it continues where it stopped",
    ),
    (
        re.compile(r"(CANNOT_LOAD_STATE_STORE|ChecksumException|Checksum error)"),
        f"a state file of the checkpoint is damaged or missing; {RESTORE}",
    ),
    (
        re.compile(r"(Read-only file system|Permission denied|AccessDeniedException|Input/output error)"),
        "the state folder cannot be written; fix the disk or the permissions, then start the pipeline again",
    ),
    (
        re.compile(r"(No space left on device|Disk quota exceeded)"),
        "the disk is full; free space for the state folder, then start the pipeline again",
    ),
    (
        re.compile(r"Python worker exited unexpectedly"),
        (
            "a Python worker of Spark's ended: it was killed or ran out of memory; start the pipeline again, which "
            "continues where it stopped"
        ),
    ),
)
# The same for the start of a session.
_KNOWN_START_ERRORS = (
    (
        re.compile(r"JAVA_GATEWAY_EXITED"),
        "Java ended before Spark started; see stderr for the reason (driver.log for a driver in the background)",
    ),
    (re.compile(r"stopped SparkContext"), "Spark ended while it started; its cluster may not answer"),
)


def explain_failure(
    error: BaseException, rest: str = "; see spark.log beside the checkpoint", more_memory: str = MORE_MEMORY
) -> str:
    """Return what went wrong in an exception of Spark's, in one line.

    This project's own error, if one was raised in a Python worker; else the explanation of a known error; else the
    deepest cause, followed by `rest`, which says where to read more. more_memory: how the JVM gets some. Call this
    while the JVM runs, as it has the texts.
    """
    text = _text(error)
    if own := _OWN_ERROR.search(text):
        return own["text"].strip()
    known = _explain_known(_KNOWN_ERRORS, text, more_memory)
    return known or f"{_reason(error, text.partition(_PLAN)[0])}{rest}"


def may_lack_records(error: BaseException) -> bool:
    """Return whether the error may mean that a topic, a partition or unread records are gone from Kafka."""
    text = _text(error)
    # For a topic that is deleted while it is read, a timeout may be the only error.
    return any(pattern.search(text) for pattern in (_DATA_LOSS, _UNKNOWN_TOPIC, _NO_ANSWER))


def is_conflict(error: BaseException) -> bool:
    """Return whether another query has written a file of the checkpoint that this one was to write."""
    return bool(_CONFLICT.search(_text(error)))


def explain_start(error: BaseException) -> str:
    """Return why a Spark session did not start."""
    text = _text(error)
    return _explain_known(_KNOWN_START_ERRORS, text) or _reason(error, text)


def _text(error: BaseException) -> str:
    """Return the text of an exception; Java's is read from the JVM, which may have ended."""
    try:
        return str(error)
    except (Py4JError, ConnectionError):
        return "Spark's JVM ended before it reported a reason"


def _explain_known(
    patterns: Iterable[tuple[re.Pattern[str], str]], text: str, more_memory: str = MORE_MEMORY
) -> str | None:
    """Return the explanation of the first pattern that matches the text; None where none does.

    A lack of memory comes first, as it may cause errors that match the others.
    """
    if match := _NO_MEMORY.search(text):
        return f"Spark's JVM has too little memory; {more_memory}, then start the pipeline again ({match[0]})"
    for pattern, explanation in patterns:
        if match := pattern.search(text):
            return f"{explanation} ({match[0]})"
    return None


def _reason(error: BaseException, text: str) -> str:
    """Return the most specific line of an unknown error: its last cause, else its exception, else its first line."""
    # A cause from Python begins with a traceback: its line says nothing.
    causes = [cause.strip() for cause in _CAUSED_BY.findall(text) if not cause.endswith(_TRACEBACK)]
    if causes:
        return str(causes[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first_line = lines[0] if lines else "no reason given"
    # In a traceback, or Java's text, the exception itself is the last one printed.
    has_stack = isinstance(error, Py4JJavaError) or first_line.endswith(_TRACEBACK)
    if has_stack and (exceptions := _RAISED.findall(text)):
        return str(exceptions[-1]).strip()
    return f"{type(error).__name__}: {first_line}"
