"""Building blocks of SQL statements: templates, conversion of rows, locks, ids and pages."""
