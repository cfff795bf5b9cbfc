"""Turns the events of one stream into the chunks of one reply."""

from __future__ import annotations

from models.openai_api.wire import CallEvent, Delta, FunctionDelta, StreamEvent, said_by
from models.runtime.call_ids import call_id
from pipeline.chunk import CallDelta, End, Payload, Reply, Text, Usage
from pipeline.errors import StageError

FINISHES = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length"}


class ReplyReader:
    """Reads one stream: `read` for every event, `end` when the stream is over."""

    def __init__(self, fence: Reply, *, one_call: bool = False) -> None:
        """Begin a reply. With `one_call` a second call is left out, by a service that makes one all the same."""
        self._fence, self._one_call = fence, one_call
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._call_ids: dict[int, str] = {}

    def read(self, event: StreamEvent) -> list[Payload]:
        """What an event adds. Raises `StageError` for an error that came inside the stream."""
        if event.error is not None:
            raise StageError(f"broke off with an error: {said_by(event.error) or 'without a message'}")
        if event.usage is not None:
            details = event.usage.prompt_tokens_details
            cached = (details.cached_tokens or 0) if details is not None else 0
            self._usage = Usage(event.usage.prompt_tokens or 0, cached, event.usage.completion_tokens or 0)
        payloads: list[Payload] = []
        for choice in (event.choices or ())[:1]:
            delta = choice.delta or Delta()
            if text := delta.content or delta.refusal:
                payloads.append(Text(text))
            payloads += [self._call(call) for call in delta.tool_calls or () if self._may_call(call)]
            self._finish = choice.finish_reason or self._finish
        return payloads

    def end(self) -> End:
        """The reply's end. Raises `StageError` when the stream ended before the reply did."""
        if self._finish is None:
            raise StageError("cut the connection in the middle of the reply")
        if self._finish not in FINISHES:
            raise StageError(f"stopped the reply: {self._finish}")
        return End("length" if FINISHES[self._finish] == "length" else "stop", self._usage)

    def _may_call(self, call: CallEvent) -> bool:
        return not self._one_call or not self._call_ids or call.index in self._call_ids

    def _call(self, call: CallEvent) -> CallDelta:
        first = call.index not in self._call_ids
        if first:  # some servers give no id
            self._call_ids[call.index] = call_id(call.id or f"call_{self._fence.epoch}_{call.index}")
        function = call.function or FunctionDelta()
        name = (function.name or "") if first else ""
        if first and not name:
            raise StageError("sent a function call without its name")
        return CallDelta(self._call_ids[call.index], name, function.arguments or "")
