"""A checkpoint that was lost, rebuilt from what is left: the topic, the ledger and the table."""
