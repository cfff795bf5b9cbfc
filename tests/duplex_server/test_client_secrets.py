"""Makes ephemeral keys and opens sessions with them, against a running server."""

from __future__ import annotations

import asyncio

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import InvalidStatus

from duplex_server.http.client_secrets import MOST_BODY_BYTES
from tests.duplex_server.serving import Json, Served, first, play, served

KEY = "sk-a-key-of-the-server"
KEYED = f"server.api_keys=[{KEY}]"
PATH = "/v1/realtime/client_secrets"


def error(answer: object, status: int) -> Json:
    assert getattr(answer, "status_code", None) == status, getattr(answer, "text", answer)
    body: Json = getattr(answer, "json")()  # noqa: B009  # the type of an answer is not worth an import
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    found: Json = body["error"]
    return found


@pytest.mark.parametrize("root", ["/v1", "/openai/v1", ""])
def test_check_024_an_empty_body_gives_a_key_for_ten_minutes(root: str) -> None:
    async def scene(server: Served) -> None:
        for body in (b"", b" ", {}, {"session": None, "expires_after": None}):
            await answered(server, body)

    async def answered(server: Served, body: object) -> None:
        answer = await server.ask(f"{root}/realtime/client_secrets", body, key=KEY)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found.keys() == {"value", "expires_at", "session"}
        assert found["value"].startswith("ek_")
        assert len(found["value"]) > 3 + 32 * 8 / 6
        assert found["expires_at"] == server.clock.now + 600
        assert (found["session"]["type"], found["session"]["object"]) == ("realtime", "realtime.session")
        assert found["session"]["id"].startswith("sess_")
        assert found["session"]["expires_at"] > 0
        assert "temperature" not in found["session"], "the newer dialect knows none"
        assert answer.headers["cache-control"] == "no-store"

    play(scene, KEYED)


def test_check_025_a_life_out_of_range_is_refused_by_its_name() -> None:
    async def scene(server: Served) -> None:
        for seconds in (9, 7201, 0, -1):
            found = error(await server.ask(PATH, {"expires_after": {"seconds": seconds}}, key=KEY), 400)
            assert (found["code"], found["param"]) == ("invalid_value", "expires_after.seconds")
        for written in ("60", 60.5, True):
            found = error(await server.ask(PATH, {"expires_after": {"seconds": written}}, key=KEY), 400)
            assert (found["code"], found["param"]) == ("invalid_type", "expires_after.seconds")
        found = error(await server.ask(PATH, {"expires_after": {"anchor": "now"}}, key=KEY), 400)
        assert found["param"] == "expires_after.anchor"
        for seconds in (10, 7200):
            body = {"expires_after": {"anchor": "created_at", "seconds": seconds}}
            answer = await server.ask(PATH, body, key=KEY)
            assert answer.json()["expires_at"] == server.clock.now + seconds

    play(scene, KEYED)


def test_check_026_a_key_for_transcription_opens_such_a_session_whatever_the_address_says() -> None:
    async def scene(server: Served) -> None:
        turns = {"type": "server_vad", "silence_duration_ms": 900}
        session = {"type": "transcription", "audio": {"input": {"turn_detection": turns}}}
        answer = (await server.ask(PATH, {"session": session}, key=KEY)).json()
        assert answer["session"]["object"] == "realtime.transcription_session"
        assert answer["session"]["type"] == "transcription"
        async with server.socket("/v1/realtime?model=gpt-realtime", key=answer["value"]) as peer:
            begun = await first(peer)
        ids = {"id", "expires_at"}
        assert {k: v for k, v in begun.items() if k not in ids} == {
            k: v for k, v in answer["session"].items() if k not in ids
        }
        assert begun["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 900

    play(scene, KEYED)


def test_check_027_a_key_opens_several_sessions_until_it_expires_and_they_outlive_it() -> None:
    async def scene(server: Served) -> None:
        key = (await server.ask(PATH, {"expires_after": {"seconds": 10}}, key=KEY)).json()["value"]
        async with server.socket(key=key) as one, server.socket(key=key) as other:
            await first(one)
            await first(other)
            server.clock.now += 9.9
            async with server.socket(protocols=("realtime", f"openai-insecure-api-key.{key}")) as third:
                await first(third)
            server.clock.now += 0.1
            with pytest.raises(InvalidStatus) as refused:
                await server.socket(key=key)
            assert refused.value.response.status_code == 401
            assert b"invalid_api_key" in (refused.value.response.body or b"")
            assert key.encode() not in (refused.value.response.body or b"")
            async with server.socket(protocols=("realtime", f"openai-insecure-api-key.{key}")) as late:
                assert '"invalid_api_key"' in str(await late.recv())
                await late.wait_closed()
                assert late.close_code == 3000
            await other.send('{"type": "input_audio_buffer.clear"}')
            assert '"input_audio_buffer.cleared"' in str(await other.recv()), "a running session goes on"
        assert len(server.sessions.door.ephemeral) == 0

    play(scene, KEYED, "server.max_sessions=5")


def test_check_028_a_session_begins_with_what_its_key_is_bound_to() -> None:
    session = {
        "type": "realtime",
        "model": "my-model",
        "instructions": "You are Ada.",
        "output_modalities": ["text"],
        "audio": {"input": {"turn_detection": None}, "output": {"voice": "high"}},
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object", "b": 1, "a": 1.50}}],
        "max_output_tokens": 100,
    }

    async def scene(server: Served) -> None:
        answer = (await server.ask(PATH, {"session": session}, key=KEY)).json()
        shown = answer["session"]
        assert (shown["model"], shown["instructions"]) == ("my-model", "You are Ada.")
        assert shown["audio"]["output"]["voice"] == "high"
        assert shown["audio"]["input"]["turn_detection"] is None
        for query in ("", "?model=another"):
            async with server.socket(f"/v1/realtime{query}", key=answer["value"]) as peer:
                begun = await first(peer)
            assert begun | {"id": "", "expires_at": 0} == shown | {"id": "", "expires_at": 0}
        async with server.socket(key=KEY) as plain:
            assert (await first(plain))["instructions"] != "You are Ada.", "bound to that key alone"

    play(scene, KEYED)


WRONG: tuple[tuple[object, str, str], ...] = (
    ({"audio": {"output": {"speed": 9}}}, "invalid_value", "session.audio.output.speed"),
    ({"speed": 9}, "invalid_value", "session.speed"),
    ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 1}}}}, "invalid_value", "audio.input.format.rate"),
    ({"input_audio_transcription": {"prompt": "x" * 5000}}, "invalid_value", "input_audio_transcription.prompt"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "invalid_value", "session.tools[0].name"),
    ({"type": "translation"}, "invalid_value", "session.type"),
    ({"type": 1}, "invalid_type", "session.type"),
    ({"model": 1}, "invalid_type", "session.model"),
    ([], "invalid_type", "session"),
)


def test_settings_are_held_to_the_rules_of_an_update() -> None:
    async def scene(server: Served) -> None:
        for session, code, param in WRONG:
            found = error(await server.ask(PATH, {"session": session}, key=KEY), 400)
            assert (found["code"], found["type"]) == (code, "invalid_request_error"), session
            assert found["param"] in (param, f"session.{param}"), session
        assert len(server.sessions.door.ephemeral) == 0

    play(scene, KEYED)


def test_check_029_the_openai_sdk_reads_the_answer() -> None:
    async def scene(server: Served) -> None:
        async with AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1") as sdk:
            made = await sdk.realtime.client_secrets.create(
                expires_after={"anchor": "created_at", "seconds": 60},
                session={"type": "realtime", "instructions": "Be brief."},
            )
            assert made.session.type == "realtime"
            assert made.session.id.startswith("sess_")
            assert made.session.instructions == "Be brief."
            other = await sdk.realtime.client_secrets.create(session={"type": "transcription"})
            assert other.session.type == "transcription"
        sdk = AsyncOpenAI(api_key=made.value, base_url=f"{server.url}/v1")
        async with sdk, sdk.realtime.connect(model="gpt-realtime") as connection:
            event = await connection.recv()
            assert event.type == "session.created"
            assert event.session.type == "realtime"
            assert event.session.instructions == "Be brief."

    play(scene, KEYED)


def test_check_039_the_older_route_takes_and_gives_flat_settings() -> None:
    flat = {
        "model": "gpt-4o-realtime-preview",
        "modalities": ["text"],
        "instructions": "You are Ada.",
        "voice": "high",
        "input_audio_format": "pcm16",
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 700},
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
        "client_secret": {"expires_after": {"anchor": "created_at", "seconds": 30}},
    }

    async def scene(server: Served) -> None:
        answer = await server.ask("/v1/realtime/sessions", flat, key=KEY, OpenAI_Beta="assistants=v2")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["object"] == "realtime.session"
        for name in ("model", "modalities", "instructions", "voice", "input_audio_format", "tools"):
            assert found[name] == flat[name]
        assert found["turn_detection"]["silence_duration_ms"] == 700
        assert found["client_secret"].keys() == {"value", "expires_at"}
        assert found["client_secret"]["expires_at"] == server.clock.now + 30
        async with server.socket(key=found["client_secret"]["value"]) as peer:
            begun = await first(peer)
        assert (begun["model"], begun["output_modalities"]) == (flat["model"], ["text"])
        assert begun["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 700
        wrong = error(await server.ask("/v1/realtime/sessions", {"voice": "high", "speed": 3}, key=KEY), 400)
        assert wrong["param"] == "speed"
        wrong = error(
            await server.ask("/v1/realtime/sessions", {"tools": [{"type": "function", "name": ""}]}, key=KEY), 400
        )
        assert wrong["param"] == "tools[0].name"
        body = {"client_secret": {"expires_after": {"seconds": 5}}}
        wrong = error(await server.ask("/v1/realtime/sessions", body, key=KEY), 400)
        assert wrong["param"] == "client_secret.expires_after.seconds"
        async with AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1") as sdk:
            made = await sdk.beta.realtime.sessions.create(model="gpt-4o-realtime-preview", voice="alloy")
        assert made.client_secret.value.startswith("ek_")
        assert made.client_secret.expires_at == server.clock.now + 600

    play(scene, KEYED)


def test_check_040_the_older_route_of_transcription_sessions() -> None:
    flat = {
        "input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "whisper-1", "language": "en"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 700},
        "modalities": ["text"],
        "client_secret": {"expires_at": {"anchor": "created_at", "seconds": 30}},
    }

    async def scene(server: Served) -> None:
        answer = await server.ask("/v1/realtime/transcription_sessions", flat, key=KEY)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["client_secret"]["value"].startswith("ek_")
        assert found["client_secret"]["expires_at"] == server.clock.now + 30
        assert found["input_audio_format"] == "pcm16"
        assert found["input_audio_transcription"]["language"] == "en"
        assert found["turn_detection"]["silence_duration_ms"] == 700
        async with server.socket(key=found["client_secret"]["value"]) as peer:
            begun = await first(peer)
        assert begun["type"] == "transcription"
        assert begun["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 700
        async with AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1") as sdk:
            made = await sdk.beta.realtime.transcription_sessions.create(input_audio_format="pcm16")
        assert made.client_secret.value.startswith("ek_")

    play(scene, KEYED)


def test_check_041_translation_needs_a_model_and_is_not_served() -> None:
    path = "/v1/realtime/translations/client_secrets"

    async def scene(server: Served) -> None:
        for body, param in ((b'{"session": {}}', "session.model"), (b"{}", "session")):
            found = error(await server.ask(path, body, key=KEY), 400)
            assert (found["code"], found["param"]) == ("missing_required_parameter", param)
        found = error(await server.ask(path, {"session": {"model": "t-1"}}, key=KEY), 404)
        assert found["code"] == "unsupported_operation"
        assert "Translation" in found["message"]

    play(scene, KEYED)


def test_only_a_key_of_the_server_makes_further_keys() -> None:
    async def scene(server: Served) -> None:
        key = (await server.ask(PATH, key=KEY)).json()["value"]
        for path in (PATH, "/v1/realtime/sessions", "/v1/realtime/transcription_sessions"):
            assert error(await server.ask(path, {}, key=key), 403)["code"] == "insufficient_permissions"
            for wrong in (None, "wrong", "ek_wrong"):
                answer = await server.ask(path, {}, key=wrong)
                assert error(answer, 401)["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"
        assert (await server.ask(PATH, api_key=KEY)).status_code == 200

    play(scene, KEYED)


def test_a_server_without_keys_checks_ephemeral_ones_all_the_same() -> None:
    async def scene(server: Served) -> None:
        answer = await server.ask(PATH, {"session": {"type": "realtime", "instructions": "You are Ada."}})
        key = answer.json()["value"]
        async with server.socket(key=key) as peer:
            assert (await first(peer))["instructions"] == "You are Ada."
        async with server.socket(key="anything") as peer:
            assert (await first(peer))["instructions"] != "You are Ada."
        with pytest.raises(InvalidStatus) as refused:
            await server.socket(key="ek_unknown")
        assert refused.value.response.status_code == 401
        assert (await server.ask(PATH, key=key)).status_code == 200, "anybody may make keys here"
        assert error(await server.ask(PATH, key="ek_unknown"), 401)["code"] == "invalid_api_key"

    play(scene)


def test_a_body_that_is_too_large_or_no_json_is_refused() -> None:
    async def scene(server: Served) -> None:
        found = error(await server.ask(PATH, b"{" + b" " * MOST_BODY_BYTES, key=KEY), 413)
        assert str(MOST_BODY_BYTES) in found["message"]

        for body in (b"{", b"\xff", b'{"session": ', b'{"session":' * 50_000):
            assert error(await server.ask(PATH, body, key=KEY), 400)["code"] == "invalid_json"
        assert error(await server.ask(PATH, [], key=KEY), 400)["code"] == "invalid_type"
        assert (await server.ask(PATH, b"{}" + b" " * (MOST_BODY_BYTES - 2), key=KEY)).status_code == 200

    play(scene, KEYED)


def test_a_body_that_does_not_say_how_long_it_is_is_bounded_too() -> None:
    """It comes in chunks, and is cut off as soon as it is too large."""

    async def talk() -> bytes:
        async with served(KEYED) as server:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = (
                f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            writer.write(head.encode())
            piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            for _ in range(MOST_BODY_BYTES // 0x10000 + 1):
                writer.write(piece)
            await writer.drain()
            status = await asyncio.wait_for(reader.readline(), 30)
            writer.close()
            return status

    assert asyncio.run(talk()).split()[1] == b"413"


def test_a_server_that_is_not_ready_says_so() -> None:
    async def scene(server: Served) -> None:
        answer = await server.ask(PATH, key=KEY)
        assert error(answer, 503)["code"] == "not_ready"
        assert int(answer.headers["retry-after"]) > 0
        assert error(await server.ask(PATH), 401)["code"] == "invalid_api_key"

    play(scene, KEYED, loaded=False)
