"""PostgreSQL: models, the embedded server, and repositories by intent. Database sessions never leave this package."""
