"""One self-contained HTML page: its frame, its colours, and the two ways in which text of strangers gets into it.

Names are hostile input. In markup they go through `text`; in data for a script, through `script_json`, and the
script writes them with `textContent` only. Nothing is loaded over a network, and the page's own policy forbids it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from karat.report.words import printable

_SLOT: Final = re.compile(r"<!--karat:([a-z]+)-->|/\*karat:([a-z]+)\*/")
_SAFE_IN_SCRIPT: Final = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def page(*, title: str, body: str, style: str, script: str = "") -> str:
    """The whole page: markup of the body in the common frame, with the page's own style after the common one."""
    block = f'\n"use strict";\n(() => {{\n{script}\n}})();\n'
    digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
    slots = {
        "title": text(title),
        "css": f"{asset('karat.report', 'page.css')}{style}",
        # This very script, and none that markup of others would bring.
        "scripts": f"script-src 'sha256-{digest}'; " if script else "",
        "body": body,
        "script": f"<script>{block}</script>" if script else "",
    }
    return fill(asset("karat.report", "page.html"), slots)


def fill(template: str, slots: Mapping[str, str]) -> str:
    """The template with every slot filled, in one pass: nothing that was put in is looked at again."""
    return _SLOT.sub(lambda slot: slots[slot[1] or slot[2]], template)


def asset(package: str, name: str) -> str:
    """A file that lies beside the code."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def text(words: str) -> str:
    """Words as markup, on one line."""
    return html.escape(printable(words))


def script_json(value: object) -> str:
    """JSON that is safe inside a script element, whatever its strings hold."""
    dumped = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return dumped.translate(_SAFE_IN_SCRIPT)
