"""The embedded PostgreSQL server, used if no DATABASE_URL is set: binaries from a wheel, run by this service.

Any number of processes may share one data directory. The first starts the server, the last one to leave stops it, and
any process that finds it dead restarts it. Lock files order these steps.
"""

from throughline.postgres_server.layout import EmbeddedConfig, choose_data_dir, has_cluster
from throughline.postgres_server.server import EmbeddedServer

__all__ = ["EmbeddedConfig", "EmbeddedServer", "choose_data_dir", "has_cluster"]
