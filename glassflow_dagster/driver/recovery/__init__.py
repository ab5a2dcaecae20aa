"""Recovery from a lost checkpoint: rebuilds it from topic, ledger and table, or continues without what is lost."""
