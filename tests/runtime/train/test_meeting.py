"""The port that workers meet at is held from when it is named, so that nothing else can take it in between."""

from __future__ import annotations

import socket
import subprocess
import sys

import psutil
import pytest
import torch.distributed as dist

from rlctl.runtime.train.distributed import join, leave, offer

SECOND = "from rlctl.runtime.train.distributed import join; join(1, 2, '127.0.0.1', {port}, timeout=60)"


def test_a_port_of_one_machine_is_closed_to_others() -> None:
    for address, wanted in (("127.0.0.1", {"127.0.0.1"}), ("0.0.0.0", {"::", "0.0.0.0"})):
        port = offer(address)
        own = psutil.Process().net_connections("tcp")
        bound = {each.laddr.ip for each in own if each.laddr.port == port and each.status == psutil.CONN_LISTEN}
        assert bound, port
        assert bound <= wanted


def test_an_offered_port_is_taken_and_is_where_workers_meet() -> None:
    port = offer("127.0.0.1")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", port))
    second = subprocess.Popen([sys.executable, "-c", SECOND.format(port=port)])
    try:
        join(0, 2, "127.0.0.1", port, timeout=60)
        assert (dist.get_rank(), dist.get_world_size()) == (0, 2)
        assert second.wait(60) == 0, "the first has to stay until it has joined: it serves the store of both"
    finally:
        leave()
        second.kill()
