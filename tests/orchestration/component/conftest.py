from tests.control.fakes import definition, state

__all__ = ["definition", "state"]  # fixtures
