from tests.driver.fakes import definition, state

__all__ = ["definition", "state"]  # fixtures
