"""Tests that the page about clients shows what is run, and the versions that it is run with."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "clients.md").read_text()


def flat(text: str) -> str:
    """Without indentation, which a program has and the page has not."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_every_line_of_code_on_the_page_is_one_that_runs() -> None:
    sections = PAGE.split("\n## ")[1:]
    assert len(sections) == 6
    for section in sections:
        (program,) = re.findall(r"\((?:\.\./)(tests/clients/\S+)\)", section)
        blocks = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
        assert blocks, section
        for block in blocks:
            assert f"\n{flat(block)}\n" in flat((ROOT / program).read_text()), (program, block)


def test_the_versions_on_the_page_are_those_that_are_installed() -> None:
    pinned = (ROOT / "requirements" / "clients.txt").read_text()
    node = json.loads((ROOT / "tests" / "clients" / "node" / "package.json").read_text())["dependencies"]
    versions = [
        *re.findall(
            r"^(?:openai|openai-agents|livekit-plugins-openai|pipecat-ai\[openai\])==(\S+)", pinned, re.MULTILINE
        ),
        node["openai"],
        node["@openai/agents-realtime"],
    ]
    assert sorted(re.findall(r"\| (\d+\.\d+\.\d+) \|", PAGE)) == sorted(versions)
