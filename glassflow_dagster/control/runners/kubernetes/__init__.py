"""Runs drivers on Kubernetes, by an operator for Spark applications."""
