"""Names the lines of the checklist that can't be checked over a WebSocket and HTTP from outside, and why."""

from __future__ import annotations

WEBRTC = "it needs a WebRTC call"
CLIENT = "it needs the client itself: tests/clients of this project runs it"
BATCH = "it is about the batch routes, not about Realtime sessions"
INSIDE = "it can't be provoked from outside"

_NAMES: dict[str, dict[int, str]] = {
    WEBRTC: {
        10: "?call_id= of a live WebRTC call attaches",
        12: "a sideband socket that closes leaves the call running",
        30: "POST /calls with application/sdp gets 201",
        31: "POST /calls with multipart gets 201",
        32: "POST /calls with multipart plain text parts gets 201",
        33: "an offer without ICE candidates connects",
        34: "a malformed SDP gets 400 with the envelope",
        37: "/hangup ends the call; a second one gets 404",
        155: "the channel oai-events opens with session.created",
        156: "session.updated answers the first update",
        157: "sound goes by RTP, not over the data channel",
        158: "output_audio_buffer.started and its end come in pairs",
        159: "output_audio_buffer.stopped comes after response.done",
        160: "speech silences the RTP stream",
        161: "speech after response.done silences what still plays",
        162: "output_audio_buffer.clear with nothing playing is no error",
        163: "the agents-js WebRTC transport holds a conversation",
        164: "a client that vanishes frees its session",
    },
    CLIENT: {
        21: "the TLS listener serves the npm client",
        171: "openai Python holds a spoken turn",
        172: "openai Python holds a turn in the older dialect",
        173: "openai-agents Python holds speech, text and tool turns",
        174: "LiveKit holds a spoken turn",
        175: "pipecat holds a spoken turn",
        176: "agents-js holds a spoken turn",
        177: "npm openai holds a turn over TLS",
        178: "agents-js holds a turn over WebRTC",
        179: "aiortc holds a turn and hangs up",
    },
    INSIDE: {
        22: "a session that reaches its age ends with session_expired",
        23: "a server that stops closes with 1001 or 1012",
        94: "a transcription that fails is told, and the answer goes on",
        125: "a spoken preamble and a call are two items of one response",
        136: "an engine that fails gives a failed response, and the next one works",
    },
    BATCH: dict.fromkeys(range(181, 197), "a batch route"),
}

ELSEWHERE: dict[int, tuple[str, str]] = {
    number: (name, reason) for reason, names in _NAMES.items() for number, name in names.items()
}
"""By number: the name of the check and the reason why it is not made here."""
