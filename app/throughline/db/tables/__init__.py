"""The tables as SQLAlchemy models, the source for migrations."""

from throughline.db.tables import jobs, processes, runs, search, sessions, summaries
from throughline.db.tables.columns import Base

TABLES = (jobs, processes, runs, search, sessions, summaries)
METADATA = Base.metadata
"""The combined SQLAlchemy metadata of all table modules; a front end's tables join it when their module is imported."""
