"""The tables, as migrations make them."""

from throughline.db.tables import jobs, processes, runs, search, sessions, slack, summaries
from throughline.db.tables.columns import Base

TABLES = (jobs, processes, runs, search, sessions, slack, summaries)
METADATA = Base.metadata
"""What the tables of all these modules together describe."""
