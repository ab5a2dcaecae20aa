"""A checkpoint that was lost, made anew from what is left: the topic, the ledger and the table."""
