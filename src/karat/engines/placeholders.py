"""Placeholders: words of a command that stand for what only the runner knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from karat.engines.job import Command


def filled_text(text: str, words: Mapping[str, str]) -> str:
    """A text with `@AREA@` and the others replaced; what replaces one is not looked at again."""
    pieces = text.split("@")
    if len(pieces) < 3:
        return text
    filled, index = [pieces[0]], 1
    while index < len(pieces):
        # A word stands between two signs, so the last piece is never one.
        if pieces[index] in words and index + 1 < len(pieces):
            filled += [words[pieces[index]], pieces[index + 1]]
            index += 2
        else:
            filled += ["@", pieces[index]]
            index += 1
    return "".join(filled)


def filled_words(texts: tuple[str, ...], words: Mapping[str, str]) -> tuple[str, ...]:
    """Each text with its placeholders replaced."""
    return tuple(filled_text(text, words) for text in texts)


def filled(command: Command, words: Mapping[str, str]) -> Command:
    """A command with its placeholders replaced."""
    return msgspec.structs.replace(
        command,
        argv=filled_words(command.argv, words),
        cwd=filled_text(command.cwd, words),
        env={name: filled_text(value, words) for name, value in command.env.items()},
        unless=filled_words(command.unless, words),
        when_killed=tuple(filled_words(each, words) for each in command.when_killed),
    )
