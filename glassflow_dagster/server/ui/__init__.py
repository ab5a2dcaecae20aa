"""The page: pipelines in a browser, served by the process of the HTTP API and by its functions.

HTML is rendered here by Jinja2, and htmx (one file in `static/`) replaces parts of a page: whoever maintains this
writes Python and templates, and there is nothing to build. Without JavaScript the forms work, too; only what is live is
not.
"""
