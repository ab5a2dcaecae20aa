"""A receiver of OpenTelemetry's protocol (OTLP): HTTP and gRPC in, Kafka out.

A request is answered with success only after Kafka has acknowledged all of its messages, each the bytes of one export
request. So a client that repeats what was not answered loses nothing; what it repeats may be in the topic twice.
"""
