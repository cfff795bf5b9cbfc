"""Defines what a pipeline tells whoever counts and times it."""

from __future__ import annotations

from typing import Protocol

from pipeline.chunk import StageRole


class Observer(Protocol):
    """Told on the event loop's thread; seconds are real time. Nothing here may raise or take long."""

    def waited(self, role: StageRole, seconds: float) -> None:
        """A job was ready for so long before a step took it."""

    def stepped(self, role: StageRole, seconds: float) -> None:
        """A step is over."""

    def carried(self, role: StageRole, seconds: float) -> None:
        """A chunk has come from its stage to the server, in so long."""

    def sent(self, edge: str, nbytes: int) -> None:
        """A chunk goes along an edge; so many bytes of it lie in a data plane."""

    def stale(self, role: StageRole) -> None:
        """A chunk came too late for its job."""

    def dropped(self, edge: str, chunks: int) -> None:
        """An edge that drops the oldest did so."""

    def acknowledged(self, role: StageRole, seconds: float) -> None:
        """A stage has let go of a cancelled job, so long after the cancel."""

    def lost(self, role: StageRole, kind: str) -> None:
        """A stage went down."""

    def restarted(self, role: StageRole) -> None:
        """A stage is up again."""


class Unobserved:
    """An observer for a pipeline that nobody watches."""

    def waited(self, role: StageRole, seconds: float) -> None: ...

    def stepped(self, role: StageRole, seconds: float) -> None: ...

    def carried(self, role: StageRole, seconds: float) -> None: ...

    def sent(self, edge: str, nbytes: int) -> None: ...

    def stale(self, role: StageRole) -> None: ...

    def dropped(self, edge: str, chunks: int) -> None: ...

    def acknowledged(self, role: StageRole, seconds: float) -> None: ...

    def lost(self, role: StageRole, kind: str) -> None: ...

    def restarted(self, role: StageRole) -> None: ...
