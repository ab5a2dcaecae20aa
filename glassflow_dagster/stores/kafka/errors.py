"""The errors of Kafka connections, topics and records."""

from glassflow_dagster.errors import GlassflowError


class KafkaUnreachable(GlassflowError):
    """The brokers do not answer: they are down, or the addresses are wrong. Waiting may help."""


class KafkaRefused(GlassflowError):
    """Authentication or TLS failed: a password or a certificate is wrong. Waiting does not help."""


class TopicMissing(GlassflowError):
    """The topic does not exist. Waiting helps only when somebody creates it."""


class TopicForbidden(GlassflowError):
    """This user may not describe or read the topic. Waiting does not help."""
