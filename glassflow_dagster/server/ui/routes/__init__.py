"""The routes of the pages, by what they show."""
