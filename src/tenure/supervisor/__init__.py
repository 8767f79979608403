"""The supervisor: closes dead sessions and repairs what crashes left behind."""

from tenure.supervisor.service import Supervisor

__all__ = ["Supervisor"]
