"""The worker: pulls wake-ups, claims runs, runs bodies, stores outcomes."""

from tenure.worker.service import Worker

__all__ = ["Worker"]
