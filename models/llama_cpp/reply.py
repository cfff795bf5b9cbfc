"""Is one reply under way: its tokens, and how they become speech, or a function call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from models.llama_cpp.calls import BEGINNINGS, MARK, Call, Spotter, call_grammar
from models.llama_cpp.detokenize import TextStream
from models.llama_cpp.engine import Sampler
from models.llama_cpp.grammar import ALL, Anything, Choice, Grammar, Run, choice, forced, literal, mask, read, then
from models.llama_cpp.slots import Slot
from models.llama_cpp.vocabulary import Drawing, Scores, Vocabulary
from models.runtime.call_ids import call_id
from pipeline.chunk import Chunk, Payload, Reply, Text, Think, ToolNamed

_BLANK = Run((mask(b" \n"),))
_WORD = Run((ALL & ~mask(b'<{[`" \n'),))


def _after_blanks(grammar: Grammar) -> Grammar:
    return Choice((grammar, then(_BLANK, grammar), then(_BLANK, _BLANK, grammar)))


SPEECH = _after_blanks(then(_WORD, Anything()))
"""How a reply begins that is no call: with a word, never with JSON, code or marks, which can't be spoken."""
SPEECH_OR_CALL = Choice((SPEECH, _after_blanks(then(choice([literal(MARK), *map(literal, BEGINNINGS)]), Anything()))))


@dataclass(frozen=True, slots=True)
class Calling:
    """What a job says of calls.

    `grammar` is what follows the mark of a call; None when no tool may be called. `opening` is how a reply may begin;
    None where the model knows of no tool, and has no reason to begin with anything but speech.
    """

    grammar: Grammar | None = None
    must: bool = False
    opening: Grammar | None = None


def calling(job: Think) -> Calling:
    """How a job may or must call. Raises `StageError` when it must and can't."""
    wanted, tools = job.tool_choice, job.prompt.tools
    if wanted == "none" or (wanted == "auto" and not tools):
        return Calling(opening=SPEECH if tools else None)
    if wanted == "auto":
        return Calling(call_grammar(tools, None, strict=False), opening=SPEECH_OR_CALL)
    name = wanted.name if isinstance(wanted, ToolNamed) else None
    return Calling(call_grammar(tools, name, strict=True), must=True)


@dataclass(slots=True)
class Writing:
    """A reply under way. `tokens` is prompt and reply; the slot holds a beginning of them."""

    fence: Reply
    slot: Slot
    tokens: list[int]
    input_tokens: int
    cached_tokens: int
    max_tokens: int
    grammar: Grammar | None  # of a call, if one may be made
    opening: Grammar | None  # of speech, until it has begun as it may
    sampler: Sampler
    drawing: Drawing
    text: TextStream
    spotter: Spotter | None = None  # None where the model knows of no tool
    call: Call | None = None
    untold: list[Payload] = field(default_factory=list)
    settled: int = 0  # so many tokens are surely speech, if the others turn out to begin a call
    seq: int = 0

    @property
    def written(self) -> int:
        return len(self.tokens) - self.input_tokens

    @property
    def todo(self) -> list[int]:
        return self.tokens[len(self.slot.tokens) :]

    def chunk(self, payload: Payload, last: bool = False) -> Chunk:
        self.seq += 1
        return Chunk(self.fence, "thinker", self.seq - 1, payload, last=last)

    # ---- speech ----

    def speak(self, token: int) -> list[Payload]:
        """Take a token of speech in. When it completes the beginning of a call, `spotter.found` is true."""
        self.tokens.append(token)
        delta = self.text.push(token)
        if self.spotter is not None:
            delta = self.spotter.push(delta)
            if not self.spotter.holds and not self.spotter.found:
                self.settled = len(self.tokens)
        return [Text(delta)] if delta else []

    def fall_silent(self) -> list[Payload]:
        """The reply is over: what was held back was speech."""
        rest = self.spotter.flush() if self.spotter is not None and self.call is None else ""
        return [Text(rest)] if rest else []

    # ---- a call ----

    def open(self, scores: Scores, vocabulary: Vocabulary) -> int | None:
        """The next token of speech that has yet to begin as it may; None when it must begin anew.

        A call is begun only by a model that wants to: one that goes on otherwise than a call does, must speak.
        """
        assert self.opening is not None
        likeliest = vocabulary[int(scores.argmax())]
        if not likeliest and len(self.tokens) == self.input_tokens:
            return int(scores.argmax())  # it has nothing to say
        if read(self.opening, likeliest) is None or not likeliest:
            begun, self.opening = len(self.tokens) > self.settled, SPEECH
            if begun:
                del self.tokens[self.settled :]
                self.text.clear()
                self.spotter = Spotter()
                return None
        token, after = vocabulary.pick(scores, self.opening, self.drawing)
        self.opening = None if isinstance(after, Anything) else after
        return token

    def begin_call(self, grammar: Grammar, tokenize: Callable[[str], Sequence[int]]) -> list[Payload]:
        """Go on with a call, from where the speech ended."""
        loose = self.spotter.loose if self.spotter is not None else ""
        del self.tokens[self.settled :]
        text, grammar = forced(grammar)
        self.tokens += tokenize(f"{loose}{MARK}{text.decode()}")
        self.call = Call(grammar, call_id())
        return [*self.call.take(text)]

    def go_on(self, scores: Scores, vocabulary: Vocabulary, tokenize: Callable[[str], Sequence[int]]) -> list[Payload]:
        """Write the next token of the call, and with it all that must follow."""
        assert self.call is not None
        token, after = vocabulary.pick(scores, self.call.grammar, self.drawing)
        self.tokens.append(token)
        text, self.call.grammar = forced(after)
        if text:
            self.tokens += tokenize(text.decode())
        return [*self.call.take(vocabulary[token] + text)]
