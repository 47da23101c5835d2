from __future__ import annotations

import socket
import threading

import pytest

from karat.engines.ray_cluster import ClusterHead, answer_within


def test_what_is_not_answered_in_time_is_left_behind() -> None:
    never = threading.Event()
    assert answer_within(0.01, never.wait) is None
    never.set()


def test_an_answer_comes_back_and_so_does_an_error() -> None:
    assert answer_within(30, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        answer_within(30, lambda: 1 // 0)


def test_a_head_that_is_back_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = ClusterHead(f"127.0.0.1:{server.getsockname()[1]}")
        assert head.answers()
        assert not head.is_gone
    assert not head.answers()
    assert head.is_gone


def test_somebody_elses_head_is_not_looked_at() -> None:
    assert ClusterHead("").answers()
