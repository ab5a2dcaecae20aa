"""The Dagster component of this project, its attributes, and its scaffolder."""
