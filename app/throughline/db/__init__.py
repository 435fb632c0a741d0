"""PostgreSQL: tables, connections and repositories. Database connections are used only inside this package."""
