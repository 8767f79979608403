"""Tenure: durable tasks addressed by key on NATS JetStream, where a stale copy never has the last word."""

from tenure.actors import Actor, Call
from tenure.app import App
from tenure.bulk import CancelledMany
from tenure.client import Client
from tenure.config import Config
from tenure.context import Context, current
from tenure.core.aftermath import Outcome
from tenure.core.dead import DeadLetter
from tenure.core.errors import (
    ConfigError,
    EncryptedRecord,
    Fail,
    InvalidCall,
    KeyConflict,
    KeyIsLive,
    NewerSchema,
    OutcomeUnknown,
    RunCancelled,
    RunFailed,
    RunSuperseded,
    Snooze,
    Stopped,
    TenureError,
    Unavailable,
    UnreadableRecord,
)
from tenure.core.history import Step
from tenure.encryption import Encryption
from tenure.holds import Hold, Where
from tenure.rates import Cooldown, Debounce, RateLimit
from tenure.run import Run
from tenure.settings import Limit, Retry
from tenure.status import Cancelled, Event, Status

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "App",
    "Call",
    "Cancelled",
    "CancelledMany",
    "Client",
    "Config",
    "ConfigError",
    "Context",
    "Cooldown",
    "DeadLetter",
    "Debounce",
    "EncryptedRecord",
    "Encryption",
    "Event",
    "Fail",
    "Hold",
    "InvalidCall",
    "KeyConflict",
    "KeyIsLive",
    "Limit",
    "NewerSchema",
    "Outcome",
    "OutcomeUnknown",
    "RateLimit",
    "Retry",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunSuperseded",
    "Snooze",
    "Status",
    "Step",
    "Stopped",
    "TenureError",
    "Unavailable",
    "UnreadableRecord",
    "Where",
    "__version__",
    "current",
]
