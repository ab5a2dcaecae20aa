"""Gives a topic more partitions, for the tests of pipelines and of faults."""

from confluent_kafka.admin import AdminClient, NewPartitions

from tests.support.waiting import wait_until


def partition_count(admin: AdminClient, topic: str) -> int:
    """Return the number of partitions that the broker tells clients of."""
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions)


def grow_topic(admin: AdminClient, topic: str, partitions: int) -> None:
    """Increase a topic's partitions to this number; return when producers can see them.

    The broker answers before it tells clients of them, and a producer drops what is for an unknown partition.
    """
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    wait_until(lambda: partition_count(admin, topic) == partitions, "the broker knows the new partitions")
