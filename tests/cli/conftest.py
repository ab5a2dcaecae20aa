from tests.control.fakes import definition, deployment, state

__all__ = ["definition", "deployment", "state"]  # fixtures
