"""PostgreSQL: tables, connections, and repositories by intent. Database sessions never leave this package."""
