"""What can be wrong with Kafka, for the people who can fix it."""

from glassflow_dagster.errors import GlassflowError


class KafkaUnreachable(GlassflowError):
    """The brokers do not answer: they are down, or the addresses are wrong; waiting may help."""


class KafkaRefused(GlassflowError):
    """Brokers and client do not accept each other: a password or a certificate is wrong, which waiting does not fix."""


class TopicMissing(GlassflowError):
    """The brokers know no such topic; waiting helps where it is about to be created."""


class TopicForbidden(GlassflowError):
    """The brokers do not let this user see or read a topic, which waiting does not fix."""


class RecordMissing(GlassflowError):
    """A record is no longer there: retention or compaction took it."""
