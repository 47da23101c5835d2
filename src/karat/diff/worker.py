"""A worker process of `karat diff`: terms once, then chunks of items in, judgements out, until EOF."""

from __future__ import annotations

import sys

import msgspec

from karat.diff.judging import judge_items
from karat.diff.sides import Item
from karat.diff.workers import Task, Terms, receive, rule_book, send


def main() -> None:
    """Serve one caller over stdin and stdout."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    terms = msgspec.msgpack.decode(receive(requests), type=Terms)
    task = Task(cases=terms.cases, rules=rule_book(terms.rules), status=terms.status)
    decoder = msgspec.msgpack.Decoder(list[Item])
    while True:
        try:
            items = decoder.decode(receive(requests))
        except EOFError:
            return
        send(answers, msgspec.msgpack.encode(judge_items(items, task)))


if __name__ == "__main__":
    main()
