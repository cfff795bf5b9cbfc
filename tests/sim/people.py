"""Is a user: speaks, hesitates, interrupts, coughs, types, changes their mind, leaves, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from duplex_server.realtime import wire
from duplex_server.realtime.schema import InputText, MessageIn, Modality, ResponseParams
from tests.sim.client import Client
from tests.sim.clock import Clock
from tests.sim.scenario import Person
from tests.sim.speech import RATE_HZ

WORD_S = (0.26, 0.45)
AGAIN_S = 0.3
"""How soon a user who waits for something looks again."""
COUGHS_AFTER = 0.25
"""How often a cough follows what was said, before or while it is answered."""
SETTLED_S = 8.0
"""After this long a client knows in which state its settings are."""
Act = Callable[[], None]


class User:
    """One person; `come` gives them a new connection."""

    def __init__(self, clock: Clock, rng: Random, person: Person, name: str, come: Callable[[], Client]) -> None:
        self._clock, self._rng, self._person, self._name, self._come = clock, rng, person, name, come
        self.client = come()
        self._words = 0
        self.done = False
        self._acts: tuple[tuple[int, Act], ...] = (
            (6, self._cough),
            (3, self._mumble),
            (4, self._one_word),
            (4, self._type),
            (2, self._ask),
            (2, self._ask_beside),
            (1, self._ask_about_nothing),
            (3, self._cancel),
            (3, self._stop),
            (1, self._truncate_wrongly),
            (1, self._repeat),
            (2, self._delete),
            (1, self._retrieve),
            (2, self._instruct),
            (2, self._change_turns),
            (2, self._by_hand),
            (1, self._modality),
            (1, self._tools),
            (1, self._clear),
            (1, self._commit),
            (1, self._leave),
        )

    def start(self) -> None:
        self.client.open()
        self._clock.call_later(self._rng.uniform(0.2, 3.0), self._live)

    def finish(self) -> None:
        """Say nothing more, and ask for no more than what is due."""
        self.done = True
        self._clock.call_later(SETTLED_S, self._end_turn)

    def _end_turn(self) -> None:
        """Without a detector nobody but the client ends the last turn."""
        if self.client.here and not self._detects():
            self.client.send(wire.Commit())
            self.client.send(wire.Clear())

    # ---- living ---------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        if self.done:
            return
        rng, client = self._rng, self.client
        again_s = rng.expovariate(1 / self._person.patience_s)
        if not client.here:
            self.client = self._come()
            self.client.open()
        elif rng.random() < self._person.odd:
            rng.choices([act for _, act in self._acts], [weight for weight, _ in self._acts])[0]()
        elif client.talking:
            again_s = AGAIN_S
        elif client.speaker.playing(self._clock.now) and rng.random() > self._person.interrupts:
            again_s = AGAIN_S * 4
        else:
            self._talk(rng.choices((1, 2, rng.randint(3, 6), rng.randint(6, 14)), (2, 2, 5, 2))[0])
        self._clock.call_later(max(0.02, again_s), self._live)

    def _detects(self) -> bool:
        settings = self.client.settings
        return settings is None or settings.audio.input.turn_detection is not None

    # ---- sounds ---------------------------------------------------------------------------------------------------

    def _talk(self, words: int) -> None:
        rng, client = self._rng, self.client
        for number in range(words):
            pause_s = rng.uniform(0.0, 0.05)
            if number and rng.random() < self._person.hesitates:
                pause_s = rng.uniform(0.12, 1.4)
            self._words += 1
            client.say(pause_s, rng.uniform(*WORD_S), f"{self._name}w{self._words}")
        if rng.random() < COUGHS_AFTER:
            client.say(rng.uniform(0.4, 1.6), rng.uniform(0.15, 0.4), "")
        if not self._detects():
            after_s = (client.speech.end - client.sent) / RATE_HZ + rng.uniform(0.05, 0.4)
            self._clock.call_later(after_s, self._send_turn, client)

    def _send_turn(self, client: Client) -> None:
        """Without a detector, the client says when the user is done."""
        if client.here:
            client.send(wire.Commit())
            if self._rng.random() < 0.8:
                client.send(wire.CreateResponse())

    def _one_word(self) -> None:
        self._talk(1)

    def _cough(self) -> None:
        self.client.say(self._rng.uniform(0.0, 0.2), self._rng.uniform(0.03, 0.35), "")

    def _mumble(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            self.client.say(self._rng.uniform(0.0, 0.3), self._rng.uniform(0.1, 0.8), "")

    # ---- what clients ask -----------------------------------------------------------------------------------------

    def _type(self) -> None:
        self._words += 1
        message = MessageIn(role="user", content=(InputText(text=f"{self._name}t{self._words}"),))
        self.client.send(wire.CreateItem(item=message, previous_item_id=self._rng.choice((None, None, "root"))))
        if self._rng.random() < 0.8:
            self.client.send(wire.CreateResponse())

    def _ask(self) -> None:
        self.client.send(wire.CreateResponse())

    def _ask_beside(self) -> None:
        modality: Modality = self._rng.choice(("text", "audio"))
        params = ResponseParams(conversation="none", output_modalities=(modality,))
        self.client.send(wire.CreateResponse(response=params))

    def _ask_about_nothing(self) -> None:
        tokens = self._rng.choice((None, 1, 5))
        self.client.send(wire.CreateResponse(response=ResponseParams(input=(), max_output_tokens=tokens)))

    def _cancel(self) -> None:
        self.client.send(wire.CancelResponse())
        if self._rng.random() < 0.3:
            self.client.send(wire.CreateResponse())

    def _stop(self) -> None:
        self.client.stop()

    def _truncate_wrongly(self) -> None:
        if self.client.items:
            self.client.truncate(self._rng.choice(self.client.items), self._rng.randint(0, 20_000), None)

    def _repeat(self) -> None:
        self.client.repeat_truncation()

    def _delete(self) -> None:
        item_id = self._rng.choice([*self.client.items[-4:], "nobody"])
        self.client.send(wire.DeleteItem(item_id=item_id))

    def _retrieve(self) -> None:
        self.client.send(wire.RetrieveItem(item_id=self._rng.choice([*self.client.items, "nobody"])))

    def _clear(self) -> None:
        self.client.send(wire.Clear())
        self.client.send(wire.ClearOutput())

    def _commit(self) -> None:
        self.client.send(wire.Commit())

    # ---- settings -------------------------------------------------------------------------------------------------

    def _instruct(self) -> None:
        self.client.update(instructions=f"Be {self._rng.choice(('brief', 'kind', 'slow'))}.")

    def _change_turns(self) -> None:
        rng = self._rng
        detection: dict[str, object] = {
            "type": rng.choice(("server_vad", "server_vad", "semantic_vad")),
            "create_response": rng.random() < 0.75,
            "interrupt_response": rng.random() < 0.7,
        }
        if detection["type"] == "server_vad":
            detection["silence_duration_ms"] = rng.choice((150, 300, 500, 900))
            detection["prefix_padding_ms"] = rng.choice((150, 300, 500))
            detection["threshold"] = rng.choice((0.3, 0.5, 0.8))
        self.client.update(audio={"input": {"turn_detection": detection}})

    def _by_hand(self) -> None:
        detection = None if self._detects() else {"type": "server_vad"}
        self.client.update(audio={"input": {"turn_detection": detection}})

    def _modality(self) -> None:
        self.client.update(output_modalities=[self._rng.choice(("text", "audio", "audio"))])

    def _tools(self) -> None:
        tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
        self.client.update(tools=[tool] if self._rng.random() < 0.7 else [])

    # ---- coming and going -----------------------------------------------------------------------------------------

    def _leave(self) -> None:
        self.client.leave(self._rng.choice((0.01, 0.1, 3.0)))
