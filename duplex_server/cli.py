"""Is the `duplex-server` command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from duplex_server import __version__, preflight

DEFAULT_URL = "ws://127.0.0.1:8000/v1/realtime"
KEY_VARIABLE = "DUPLEX_API_KEY"
DIFFERS = 1  # a replay did not do what was recorded
CUT_OFF = 1
UNFIT = 1  # no conversation would work
DEVIATES = 1  # a server does not keep to the protocol
USER_ERROR = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. What a user can mend is told in one line, with code 2."""
    options = _parser().parse_args(arguments)
    try:
        preflight.check_python()
        preflight.check_packages()
        code = _run(options)
        sys.stdout.flush()
        return code
    except preflight.PreflightError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. The interpreter flushes once more as it ends: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CUT_OFF


def _run(options: argparse.Namespace) -> int:
    # Imported here, once it is known that these names are ours; each command then imports only what it needs.
    from pipeline.errors import ConfigError, StageError

    try:
        match options.command:
            case "serve":
                return _serve(options)
            case "call":
                return _call(options)
            case "replay":
                return _replay(options)
            case "doctor":
                return _doctor(options)
            case "conformance":
                return _conformance(options)
            case _:
                return _explain(options)
    except (ConfigError, StageError) as error:
        return _fail(str(error))


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return USER_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="duplex-server", description="A realtime, full-duplex voice server.")
    parser.add_argument("--version", action="version", version=f"duplex-server {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="start the server")
    _add_settings(serve)
    serve.add_argument("--host", help="address to listen on (server.host)")
    serve.add_argument("--port", type=int, help="port to listen on, 0 for any free one (server.port)")
    serve.add_argument(
        "--tls-self-signed",
        action="store_true",
        help="serve HTTPS too, with a certificate that is made and kept (server.tls_self_signed)",
    )
    serve.add_argument(
        "--open-to-all", action="store_true", help="ask other machines for no key either (server.open_to_all)"
    )

    call = commands.add_parser("call", help="ask a running server a question from a sound file")
    call.add_argument("question", type=Path, metavar="QUESTION.wav", help="speech, in WAV, FLAC, OGG or MP3")
    call.add_argument("--out", type=Path, required=True, metavar="ANSWER.wav", help="where the spoken answer goes")
    call.add_argument("--url", default=DEFAULT_URL, help=f"default: {DEFAULT_URL}")
    call.add_argument("--key", default=os.environ.get(KEY_VARIABLE), help=f"API key; default: ${KEY_VARIABLE}")

    replay = commands.add_parser("replay", help="run a session's journal through a fresh session, and compare")
    replay.add_argument("file", type=Path, metavar="FILE")

    doctor = commands.add_parser("doctor", help="examine whether a conversation would work here")
    _add_settings(doctor)
    doctor.add_argument("--json", action="store_true", help="print one JSON object only")

    _add_conformance(commands.add_parser("conformance", help="hold any Realtime server against the protocol"))

    config = commands.add_parser("config", help="show the configuration").add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    explain = config.add_parser("explain", help="every effective setting and where it came from")
    _add_settings(explain)
    return parser


def _add_conformance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="ws://host:port/v1/realtime or http://host:port/v1")
    parser.add_argument("--key", default=os.environ.get(KEY_VARIABLE), help=f"API key; default: ${KEY_VARIABLE}")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--only", metavar="NUMBERS", help="some of the checks, such as 42-50,73")
    parser.add_argument("--speech", type=Path, metavar="FILE.wav", help="what is said to it; default: a short sentence")
    parser.add_argument("--timeout-s", type=float, default=60.0, metavar="S", help="how long models may take; 60")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file of settings")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="one setting; may be repeated"
    )


def _serve(options: argparse.Namespace) -> int:
    from duplex_server.config import load_config

    flags = list(options.set)
    if options.host is not None:
        flags.append(f"server.host={json.dumps(options.host)}")
    if options.port is not None:
        flags.append(f"server.port={options.port}")
    flags += [f"server.{name}=true" for name in ("tls_self_signed", "open_to_all") if getattr(options, name)]
    config = load_config(options.config, flags, os.environ)
    preflight.check_open(config.server.hosts, keys=bool(config.server.api_keys), open_to_all=config.server.open_to_all)
    preflight.check_port(config.server.host, config.server.port)
    if config.server.tls:
        preflight.check_port(config.server.hosts[-1], config.server.tls_port, "server.tls_port")

    from duplex_server.observe import configure

    configure(config.server.log_level, config.server.api_keys, config.server.log_content)

    from duplex_server.app import run

    return run(config)


def _call(options: argparse.Namespace) -> int:
    from duplex_server.call import CallError, call

    try:
        call(options.question, options.out, options.url, options.key)
    except CallError as error:
        return _fail(str(error))
    return 0


def _replay(options: argparse.Namespace) -> int:
    from duplex_server.realtime.journal import replay

    ran = replay(options.file)
    print(ran)
    return 0 if ran.differs_at is None else DIFFERS


def _doctor(options: argparse.Namespace) -> int:
    import asyncio

    import msgspec

    from duplex_server.config import load_config
    from duplex_server.doctor import examine, lines

    config = load_config(options.config, options.set, os.environ)
    if not options.json:
        print("loading the models and letting them talk to each other ...", flush=True)
    report = asyncio.run(examine(config))
    print(msgspec.json.encode(report).decode() if options.json else "\n".join(lines(report)))
    return 0 if report.works else UNFIT


def _conformance(options: argparse.Namespace) -> int:
    import msgspec

    from duplex_server.conformance.command import Unusable, conformance
    from duplex_server.conformance.report import Result, line, summary

    def show(result: Result) -> None:
        if not options.json:
            print(line(result), flush=True)

    try:
        report = conformance(
            options.url,
            options.key,
            only=options.only,
            speech=options.speech,
            timeout_s=options.timeout_s,
            told=show,
        )
    except Unusable as error:
        return _fail(str(error))
    print(msgspec.json.encode(report).decode() if options.json else summary(report))
    return DEVIATES if report.failed else 0


def _explain(options: argparse.Namespace) -> int:
    from duplex_server.config import load_config

    config = load_config(options.config, options.set, os.environ)
    width = max(len(one.path) for one in config.explained)
    for one in config.explained:
        print(f"{one.path:{width}}  {one.value}  # {one.origin}")
    return 0
