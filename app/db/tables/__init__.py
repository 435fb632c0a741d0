"""The tables, as migrations make them."""

from app.db.tables import runs, search, sessions, slack, summaries
from app.db.tables.columns import Base

TABLES = (runs, search, sessions, slack, summaries)
METADATA = Base.metadata
"""What the tables of all these modules together describe."""
