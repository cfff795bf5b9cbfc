"""Measures the shared-memory plane between two processes, beside what a plain copy and a peer's relay do."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from loadtest.bench.shared_memory import Bench, bench
from loadtest.report import Load, Watch

ROOT = Path(__file__).resolve().parents[2]
PEER_PYTHON = ROOT / ".venv-sglang-omni" / "bin" / "python"
PEER_PROGRAM = Path(__file__).with_name("relay_peer.py")
PEER_START_S = 60.0
PEER_ANSWER_S = 120.0
PEER_STOP_S = 20.0

SIZES = tuple(4096 << n for n in range(0, 13, 2))  # 4 KiB to 16 MiB
THREADS = 2  # that send at once, as the stages of a worker do


class Effort(msgspec.Struct, frozen=True):
    """How much is sent of each size. The subjects take turns, so that a slow moment hits them alike."""

    rounds: int = 5  # of which the median is given
    most_bytes: int = 1 << 30  # in one round over our plane, within these counts
    most_count: int = 4000
    least_count: int = 64
    peer_share: int = 8  # a round of the peer's is by so much shorter: it would take minutes
    singles: int = 40  # in each round

    def count(self, nbytes: int) -> int:
        return max(self.least_count, min(self.most_count, self.most_bytes // nbytes))


class Figures(msgspec.Struct, frozen=True):
    """For payloads of one size. 1 gb_s is 1e9 bytes a second."""

    gb_s: float
    memcpy_gb_s: float
    peer_gb_s: float | None
    p50_us: float


class Result(msgspec.Struct, frozen=True):
    sizes: dict[str, Figures]
    load: Load


class Order(msgspec.Struct, frozen=True):
    """What the peer is asked for, a line each."""

    nbytes: int
    count: int
    singles: int


class Answer(msgspec.Struct, frozen=True):
    bytes_per_s: float
    alone_us: list[float]


class Peer:
    """The peer's relay, in its own environment."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def measure(self, order: Order, timeout_s: float = PEER_ANSWER_S) -> Answer:
        """Raises `SystemExit` when it can't."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise SystemExit(f"the peer's relay did not answer within {timeout_s:g} s; what it said is above")
        return msgspec.json.decode(line, type=Answer)


@contextlib.contextmanager
def peer(python: Path) -> Iterator[Peer | None]:
    """The peer, up and warm; None, with a word on standard error, where it is not installed."""
    if not python.exists():
        print(f"without {python.parent.parent.name} nothing is compared: make transport-peer-env", file=sys.stderr)
        yield None
        return
    pipe = subprocess.PIPE
    with subprocess.Popen([str(python), "-P", str(PEER_PROGRAM)], stdin=pipe, stdout=pipe) as process:
        try:
            made = Peer(process)
            made.measure(Order(SIZES[0], 1, 1), PEER_START_S)
            yield made
        finally:
            assert process.stdin is not None
            process.stdin.close()  # it ends its receiver, and itself
            try:
                process.wait(PEER_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def measure_size(ours: Bench, theirs: Peer | None, nbytes: int, effort: Effort) -> Figures:
    count = effort.count(nbytes)
    copied: list[float] = []
    streamed: list[float] = []
    alone_us: list[float] = []
    peers: list[float] = []
    for _ in range(effort.rounds):
        copied.append(ours.copy(nbytes, count))
        streamed.append(ours.stream(nbytes, count, THREADS))
        alone_us += ours.singly(nbytes, effort.singles)
        if theirs is not None:
            order = Order(nbytes, max(effort.least_count, count // effort.peer_share), effort.singles)
            peers.append(theirs.measure(order).bytes_per_s)
    return Figures(
        gb_s=round(median(streamed) / 1e9, 3),
        memcpy_gb_s=round(median(copied) / 1e9, 3),
        peer_gb_s=round(median(peers) / 1e9, 3) if peers else None,
        p50_us=round(median(alone_us), 1),
    )


def measure(sizes: Sequence[int], effort: Effort, peer_python: Path = PEER_PYTHON) -> Result:
    """The figures of each size, and how busy the machine was meanwhile."""
    with bench(sizes) as ours, peer(peer_python) as theirs:
        watch = Watch([os.getpid()])
        figures = {str(nbytes): measure_size(ours, theirs, nbytes, effort) for nbytes in sizes}
        return Result(figures, watch.load())


def table(result: Result) -> str:
    """The figures for a person to read."""
    lines = [f"{'bytes':>10}  {'GB/s':>7}  {'memcpy':>7}  {'share':>6}  {'peer':>7}  {'times':>6}  {'p50 us':>7}"]
    for nbytes, it in result.sizes.items():
        share = f"{it.gb_s / it.memcpy_gb_s:.2f}"
        peer_gb_s, times = ("-", "-") if it.peer_gb_s is None else (f"{it.peer_gb_s}", f"{it.gb_s / it.peer_gb_s:.0f}")
        cells = f"{it.gb_s:7.3f}  {it.memcpy_gb_s:7.3f}  {share:>6}  {peer_gb_s:>7}  {times:>6}  {it.p50_us:7.1f}"
        lines.append(f"{nbytes:>10}  {cells}")
    busy = "; busy: not to be quoted" if result.load.busy else ""
    lines.append(f"{result.load.cores} cores, others used {result.load.other_cores} of them{busy}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    options = parser.parse_args()
    result = measure(SIZES, Effort())
    print(msgspec.json.encode(result).decode() if options.json else table(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
