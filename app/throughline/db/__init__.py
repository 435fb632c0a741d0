"""Access to PostgreSQL: table definitions, connections, and repositories, which read and write stored data.

Other packages use no database connection themselves.
"""
