"""ClickHouse's HTTP interface over the engine in the chdb wheel.

`statement` finds where a statement ends and its data begins, `coding` packs and unpacks bodies, `engine` runs
statements on handles of the engine, `errors` gives the engine's errors their HTTP status, `app` ties them to HTTP.

What differs from a server: there are no users (any credentials are taken), `query_id` is only echoed, `DateTime`
columns lose their time zone in the Native format (the instant is right), and tables sent along with a query
(external data) and ClickHouse's own compressed framing (`compress=1`) are refused.
"""
