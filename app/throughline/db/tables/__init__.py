"""The tables as SQLAlchemy models, the source for migrations."""

from throughline.db.tables import jobs, processes, runs, search, sessions, slack, summaries
from throughline.db.tables.columns import Base

TABLES = (jobs, processes, runs, search, sessions, slack, summaries)
METADATA = Base.metadata
"""The combined SQLAlchemy metadata of all table modules."""
