"""Settings of turns, the processes that run them, and the search in their history."""

from pydantic import Field

from throughline.domain.run import Caps
from throughline.settings.section import HOUR, SettingsSection


class TurnSettings(SettingsSection):
    """Turns: how many run and wait, and what a process uses for them."""

    worker_concurrency: int = Field(
        500,
        ge=1,
        le=5_000,
        description="Most open turns of this process. A turn mostly waits for its model or a tool, which costs only "
        "memory: about 0.1 MB for a short conversation, and up to twice the text of the model's window for a long one. "
        "A process uses one core.",
    )
    loaded_rows_bytes: int = Field(
        64_000_000,
        ge=0,
        le=100_000_000_000,
        description="Bytes of loaded session rows that this process keeps in memory, so that the next turn loads only "
        "new rows. The rows of the session without a turn for the longest time are dropped first; 0 keeps none.",
    )
    compute_threads: int = Field(
        2,
        ge=1,
        le=64,
        description="Threads of this process that count, cut and index long texts; further long texts wait. Short "
        "texts need no thread.",
    )
    lease_seconds: float = Field(
        10.0,
        ge=2,
        le=HOUR,
        description="How long a process without a heartbeat keeps its runs and Slack deliveries. Then another process "
        "takes them over.",
    )
    job_concurrency: int = Field(
        32,
        ge=1,
        le=500,
        description="Concurrent side jobs of this process. Most are summaries prepared in the background, which wait "
        "for their model. One user may use a quarter of the slots. Further rounds of long histories may use half of "
        "them.",
    )
    no_worker_timeout_seconds: float = Field(
        30.0,
        gt=0,
        le=HOUR,
        description="How long a request waits for a running worker before it gets 503. A request behind other turns "
        "waits longer.",
    )
    max_queued_per_session: int = Field(
        10, ge=1, le=10_000, description="Messages of one session that may wait while a turn runs."
    )
    max_queued_per_owner: int = Field(
        1_000,
        ge=1,
        le=1_000_000,
        description="Messages that may wait in all sessions of one owner together: a user, or a Slack channel.",
    )
    max_running_per_owner: int = Field(
        250,
        ge=1,
        le=1_000_000,
        description="Turns of one owner that may run at once, in all processes together; further ones wait. The "
        "default is half of the default of WORKER_CONCURRENCY. Lower both together: one owner can use all turns of a "
        "process whose WORKER_CONCURRENCY is not above this.",
    )
    shutdown_grace_seconds: float = Field(
        20.0,
        ge=0,
        le=HOUR,
        description="How long running turns may take to end at shutdown. Then another worker takes them over.",
    )

    @property
    def caps(self) -> Caps:
        """Return the limits on waiting messages per session and owner, and on running turns per owner."""
        return Caps(self.max_queued_per_session, self.max_queued_per_owner, self.max_running_per_owner)


class HistorySearchSettings(SettingsSection):
    """Full-text search in histories."""

    search_language: str = Field(
        "english",
        description="The language whose words are taken to their stem (Snowball's name for it: english, german, "
        "french …). Text in others is found too, word by word. After a change, each history is indexed again when it "
        "is first searched.",
    )
