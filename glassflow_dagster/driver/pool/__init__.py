"""Pools: several pipelines whose drivers share one Spark JVM.

A JVM takes half a gigabyte, and each of the pipelines on a host may need little of it. A pool is a process of its own
with a JVM, which the first driver starts that asks for it. Each driver stays a process, too, with its own heartbeat,
lock, log and checkpoint; it gets a Spark session of the pool instead of a JVM. So a pipeline is started, stopped,
edited and taken over without the others. Only the end of the JVM ends the queries of all.

A driver is attached to its pool by a connection that stays open. When that closes, however the driver has ended, the
pool stops its queries.
"""
