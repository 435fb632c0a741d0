"""The embedded PostgreSQL: real server binaries from a wheel, supervised by us; used when no DATABASE_URL is set.

Any number of processes may share one data directory: each attaches through a lock, the first starts the server, the
last one out stops it, and whoever finds it dead starts it again.
"""

from throughline.postgres_server.config import EmbeddedConfig
from throughline.postgres_server.layout import choose_data_dir, has_cluster
from throughline.postgres_server.server import EmbeddedServer

__all__ = ["EmbeddedConfig", "EmbeddedServer", "choose_data_dir", "has_cluster"]
