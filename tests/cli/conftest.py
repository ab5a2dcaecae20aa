from tests.driver.fakes import definition, deployment, state

__all__ = ["definition", "deployment", "state"]  # fixtures
