"""The PostgreSQL connection: addresses, pools, transactions, error translation, migrations and notifications."""
