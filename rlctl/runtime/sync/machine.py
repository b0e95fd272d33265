"""The controller's side of a weight sync: one state machine, whatever way the weights take.

    source   begin ─ next ─ … ─ next ── end    who has the weights: train workers, or a folder
               │      │          │
    engines  load ─ load ─ … ─ load            they answer nothing from the first bucket to the last, which says that it is that

    idle ──bucket──▶ loading ──bucket──▶ loading ── … ──last──▶ idle, and the version is the new one
                       └── a failure ──▶ the source is run to its end, engines answer nothing until a whole sync

While the engines load a bucket the next is gathered. An engine that is lost meanwhile is replaced, and gets all weights when
the others have theirs. If it shares its GPU with training, the source is run to its end, training leaves the GPU, the engine
is replaced, and all begin again. Over NCCL, where the others wait for it, it is lost to the run as a training worker would be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open

from rlctl.common.errors import RunError
from rlctl.runtime.processes.calls import StopRequested, WorkerLost
from rlctl.runtime.processes.group import Group, Limit, RetryPolicy, Waiting
from rlctl.runtime.sync.bucket import Named
from rlctl.runtime.sync.device import Nccl
from rlctl.runtime.sync.sender import Message, Sender
from rlctl.runtime.sync.transport import HostMemory, Transport
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Trainer


class Source(Protocol):
    """Who gives weights out, bucket by bucket."""

    transport: Transport

    def turn(self) -> AbstractContextManager[Any]:
        """Within, the weights stay as they are."""
        ...

    def meet(self, engines: Group, indices: Sequence[int], limit: Limit) -> None:
        """Connect both ends, where the way has to (``Transport.meets``) and they are not."""
        ...

    def begin(self, engines: Sequence[int], limit: Limit) -> Waiting:
        """Begin to give out the weights of now to some engines: the message of the first bucket, as ``next`` gives others."""
        ...

    def next(self, limit: Limit) -> Waiting:
        """Begin to make the message of the next bucket: the only value that is waited for, None where there is none."""
        ...

    def end(self, limit: Limit, *, whole: bool) -> None:
        """Nothing more is asked for; ``whole`` if ``next`` gave None."""
        ...


@dataclass
class TrainWorkers:
    """The workers of the policy: the first, or each on a GPU of an engine, gives out what it gathers from all."""

    group: Group
    transport: Transport
    bucket_bytes: int
    _senders: tuple[int, ...] = (0,)
    _others: Waiting | None = None

    def turn(self) -> AbstractContextManager[Any]:
        return self.group.turn

    def meet(self, engines: Group, indices: Sequence[int], limit: Limit) -> None:
        if not isinstance(self.transport, Nccl):
            return
        (ours,) = self.group.begin(Trainer.meeting, {0: ()}, limit=limit).wait()
        theirs = engines.begin(RolloutWorker.meeting, dict.fromkeys(indices, ()), limit=limit).wait()
        processes = self.transport.processes
        joined = len(indices) * processes
        if ours is not None and ours.world_size == joined + 1 and set(theirs) == {ours}:
            return
        (meeting,) = self.group.begin(Trainer.offer_meeting, {0: (joined, self.bucket_bytes)}, limit=limit).wait()
        coming = self.group.begin(Trainer.meet, {0: (meeting,)}, limit=limit)
        calls = {index: (meeting, place, processes) for place, index in enumerate(indices)}
        engines.begin(RolloutWorker.meet, calls, limit=limit, beside=coming).wait()
        coming.wait()

    def begin(self, engines: Sequence[int], limit: Limit) -> Waiting:
        self._senders = self.transport.senders(engines)
        arguments = (self.transport, self.bucket_bytes, self._senders)
        others = dict.fromkeys(sorted(set(self.group.processes_of()) - set(self._senders)), arguments)
        self._others = self.group.begin(Trainer.begin_weights, others, limit=limit) if others else None
        return self._from_senders(Trainer.begin_weights, arguments, limit)

    def next(self, limit: Limit) -> Waiting:
        return self._from_senders(Trainer.next_bucket, (), limit)

    def _from_senders(self, method: Callable[..., Any], arguments: tuple[Any, ...], limit: Limit) -> Waiting:
        calls, alone = dict.fromkeys(self._senders, arguments), len(self._senders) == 1
        coming = self.group.begin(method, calls, keep=alone, limit=limit, beside=self._others)
        return coming if alone else _Joined(coming, self.transport)

    def end(self, limit: Limit, *, whole: bool) -> None:
        if self.transport.keeps or not whole:
            calls = dict.fromkeys(self._senders, ())
            self.group.begin(Trainer.end_weights, calls, limit=limit, beside=self._others).wait()
        if self._others is not None:
            self._others.wait()


@dataclass
class _Joined:
    """The message of a bucket from those of all senders."""

    coming: Waiting
    transport: Transport

    def wait(self) -> list[Message | None]:
        messages: list[Message | None] = self.coming.wait()
        told = [message for message in messages if message is not None]
        if not told:
            return [None]
        return [Message(self.transport.joined([message.content for message in told]), told[0].last)]


class UnreadableWeights(RunError):
    """Weights in a folder that are not there, or not whole."""


class Files:
    """Weights that another run has written to a folder, in Hugging Face format; this process reads them."""

    def __init__(self, folder: Path, bucket_bytes: int, share: Callable[[Any], Any]) -> None:
        """``share``: of the group that gets them (``Group.share``)."""
        self.transport: Transport = HostMemory()
        self._folder, self._bucket_bytes, self._share = folder, bucket_bytes, share
        self._sender: Sender

    def turn(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def meet(self, engines: Group, indices: Sequence[int], limit: Limit) -> None:
        """Files are met by opening them."""

    def begin(self, engines: Sequence[int], limit: Limit) -> Waiting:
        self._sender = Sender(stored(self._folder), self.transport.outlet(None), bucket_bytes=self._bucket_bytes)
        return self

    def next(self, limit: Limit) -> Waiting:
        return self

    def wait(self) -> list[Any]:
        """The message of the next bucket.

        Raises:
            UnreadableWeights: the files cannot be read.
        """
        bucket = self._sender.next()
        return [None if bucket is None else self._share(bucket)]

    def end(self, limit: Limit, *, whole: bool) -> None:
        """The files are others'."""


def stored(folder: Path) -> Iterator[Named]:
    """The weights in a folder, one tensor at a time.

    Raises:
        UnreadableWeights: they cannot be read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UnreadableWeights(f"there are no *.safetensors in {folder}")
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - no mapping
                    yield name, file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise UnreadableWeights(f"{path}: {error}") from error


@dataclass
class WeightSync:
    """Brings rollout engines to new weights."""

    engines: Group
    timeout: float
    """Seconds that one side waits for the other, for each bucket."""
    again: RetryPolicy | None = None
    """How an engine that is lost meanwhile is replaced; it gets the weights when the others have them. Not over NCCL."""

    def run(self, source: Source, version: int, only: Collection[int] = ()) -> None:
        """Give engines, by default all, the source's weights.

        Raises:
            RunError: it failed; the engines answer nothing until a sync succeeds.
            WorkerLost: a process is gone or does not answer, and was not replaced.
            StopRequested: the run was asked to end.
        """
        engines = sorted(only) or list(range(len(self.engines)))
        with source.turn():
            if self.again is not None and self.again.make_room is not None and not source.transport.meets:
                self._in_turns(source, version, engines, self.again)
                return
            behind = self._attempt(source, version, engines, self.again)
            if behind:
                self._attempt(source, version, sorted(behind), None)

    def _in_turns(self, source: Source, version: int, engines: list[int], again: RetryPolicy) -> None:
        """Engines that need the room of the source, which is busy while it gives weights out: replaced between attempts."""
        for left in reversed(range(again.times + 1)):
            try:
                self._attempt(source, version, engines, None)
            except WorkerLost as lost:
                if not left or lost.actor not in self.engines.names:
                    raise
                calls: dict[int, tuple[Any, ...]] = dict.fromkeys(engines, ())
                late = Limit(self.timeout, f"it did not start again within {self.timeout:g} s (weight_sync.timeout)")
                replacing = RetryPolicy(1, again.tell, make_room=again.make_room)
                self.engines.begin(RolloutWorker.meeting, calls, again=replacing, limit=late).wait()
            else:
                return

    def _attempt(self, source: Source, version: int, engines: list[int], again: RetryPolicy | None) -> set[int]:
        """One pass over the buckets; the engines that took the place of others after it had begun."""
        number, behind = 1, set[int]()
        again = None if source.transport.meets else again

        def within(what: str) -> Limit:
            return Limit(
                self.timeout, f"{what} of weight version {version} within {self.timeout:g} s (weight_sync.timeout)"
            )

        def each(method: Callable[..., Any], what: str, *args: Any, joins: bool = False) -> None:
            renew = (
                RetryPolicy(again.times, again.tell, (lambda index: None) if joins else behind.add) if again else None
            )
            calls = dict.fromkeys(engines, (version, *args))
            self.engines.begin(method, calls, again=renew, limit=within(what)).wait()

        def gathered() -> Limit:
            return within(f"bucket {number} was not gathered")

        try:
            source.meet(self.engines, engines, within("training and rollout did not both join the sync"))
            coming = source.begin(engines, gathered())
            while (message := coming.wait()[0]) is not None:
                opens = (source.transport,) if number == 1 else ()
                number += 1
                coming = source.next(gathered())
                what = f"it did not load bucket {number - 1}"
                each(RolloutWorker.load_bucket, what, message, *opens, joins=bool(opens))
            source.end(within("training did not finish the sync"), whole=True)
        except StopRequested:
            raise
        except Exception:
            if not source.transport.meets:  # one that has met waits for engines that will not come
                with suppress(Exception):
                    source.end(within("training did not finish the sync"), whole=False)
            raise
        return behind
