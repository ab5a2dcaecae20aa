"""What can be wrong with Kafka, for the people who can mend it."""

from glassflow_dagster.errors import GlassflowError


class KafkaUnreachable(GlassflowError):  # noqa: N818 - named for what is the case
    """The brokers do not answer: they are down, or the addresses are wrong; waiting may help."""


class KafkaRefused(GlassflowError):  # noqa: N818 - named for what is the case
    """Brokers and client do not accept each other: a password or a certificate is wrong, which no waiting mends."""


class TopicMissing(GlassflowError):  # noqa: N818 - named for what is the case
    """The brokers know no such topic; waiting helps where it is about to be created."""


class TopicForbidden(GlassflowError):  # noqa: N818 - named for what is the case
    """The brokers do not let this user see or read a topic, which no waiting mends."""


class RecordMissing(GlassflowError):  # noqa: N818 - named for what is the case
    """A record is no longer there: retention or compaction took it."""
