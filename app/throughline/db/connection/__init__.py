"""Reaching PostgreSQL: addresses, pools, transactions, failures, migrations, and notifications between processes."""
