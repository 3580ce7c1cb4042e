"""Keeps one TCP connection to every other rank, served by a daemon thread; messages are lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tstatic.errors import RankFailedError, reason

Message = dict[str, Any]

_CHUNK = 1 << 16
"""Bytes of one read or write: the whole of almost any message."""
_HELLO = 512
"""Bytes of the longest greeting; a peer that sends more is not a rank."""
_STRANGERS = 128
"""Foreign connections that may queue up without keeping a rank out: as many as Linux allowed by default for long."""
_SLICE = 0.25
"""Seconds between checks for a failed rank while waiting for connections."""
_LOOK_UP = 5.0
"""Seconds for which a name is looked up again while the name server does not answer."""
_BACKLOG = 64 << 20
"""Bytes buffered for a rank that does not read; further messages are dropped, because such a rank has stopped."""


class Listener(Protocol):
    """Receives the events of a mesh; all methods are called in its thread and must return quickly."""

    def on_message(self, rank: int, message: Message) -> None:
        """Handles a message."""

    def on_disconnect(self, rank: int, why: str) -> None:
        """Handles a closed connection; ``why`` is empty if the peer closed it normally."""

    def on_timer(self, now: float) -> float:
        """Handles the timer; returns its next time, in seconds of ``time.monotonic``."""


class Mesh:
    """The connections of one rank.

    Every pair of ranks shares one connection, which the higher rank opens. A greeting carries a secret that the lower
    rank published at the rendezvous, so only ranks get in; after :meth:`connect` no connection is accepted.

    Args:
        rank: This rank.
        size: Number of ranks.
        host: Address at which the others reach this machine.
    """

    def __init__(self, rank: int, size: int, host: str) -> None:
        self.rank = rank
        self.size = size
        # 128 bits: nobody guesses them while the ranks meet.
        self._secret = secrets.token_hex(16)
        self._server = socket.create_server((host, 0), family=_family(host), backlog=size + _STRANGERS)
        self.port: int = self._server.getsockname()[1]
        self.host = host
        self._sockets: dict[int, socket.socket] = {}
        self._incoming: dict[int, bytes] = {}
        self._outgoing: dict[int, bytearray] = {}
        self._outbox: deque[tuple[int | None, bytes]] = deque()
        # Writing a byte to the alarm wakes the thread out of its select; that takes no lock.
        self._waker, self._alarm = socket.socketpair()
        self._stopping = False
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._serve, name="tstatic-liveness", daemon=True)

    @property
    def address(self) -> str:
        """The data that the others need to connect, as JSON."""
        return json.dumps({"host": self.host, "port": self.port, "secret": self._secret})

    # ------------------------------------------------------------------------------------------------------------ start
    def connect(self, addresses: Mapping[int, str], deadline: float, watch: Callable[[], None] = lambda: None) -> None:
        """Connects to the lower ranks, and waits for the higher ones.

        Raises:
            RankFailedError: If one does not connect before the deadline, a time of ``time.monotonic``.
        """
        try:
            # Calling before accepting cannot deadlock: the kernel completes connections to a listening socket by itself.
            for rank in range(self.rank):
                try:
                    self._call(rank, json.loads(addresses[rank]), deadline)
                except RankFailedError:
                    # A rank that cannot be reached has most often died, which `watch` is about to report.
                    for _ in range(10):
                        watch()
                        time.sleep(0.05)
                    raise
            while len(self._sockets) < self.size - 1:
                watch()
                self._answer(deadline)
        finally:
            self._server.close()
        for other in self._sockets.values():
            other.setblocking(False)
            # Messages are small and someone waits for each: gathering them would delay every exchange.
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming = dict.fromkeys(self._sockets, b"")
        self._outgoing = {rank: bytearray() for rank in self._sockets}

    def _call(self, rank: int, address: Mapping[str, Any], deadline: float) -> None:
        try:
            # At least a moment: 0 would mean a socket that does not wait, and fails at once.
            link = socket.create_connection((address["host"], address["port"]), max(0.1, deadline - time.monotonic()))
            link.sendall(json.dumps({"rank": self.rank, "secret": address["secret"]}).encode() + b"\n")
        except OSError as error:
            raise RankFailedError(
                f"rank {self.rank} cannot reach rank {rank}",
                expected=f"rank {rank} at {address['host']}:{address['port']}",
                received=f"{type(error).__name__}: {error}",
                fix="look at that rank's own output; open the network between the machines",
            ) from error
        self._sockets[rank] = link

    def _answer(self, deadline: float) -> None:
        missing = sorted(set(range(self.rank + 1, self.size)) - set(self._sockets))
        left = deadline - time.monotonic()
        if left <= 0:
            raise RankFailedError(
                f"{_ranks(missing)} of {self.size} did not connect to rank {self.rank}",
                expected="connections from all higher ranks",
                received=f"nothing from {_ranks(missing)}",
                fix="look at the output of those ranks; raise FLAGS_rendezvous_timeout_s if they start slowly",
            )
        self._server.settimeout(min(left, _SLICE))
        try:
            link, _ = self._server.accept()
        except TimeoutError:
            return
        # A stranger that connects and says nothing keeps the ranks behind it waiting for this long.
        link.settimeout(min(left, 2.0))
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            greeting = b""
            while not greeting.endswith(b"\n") and len(greeting) < _HELLO:
                # One byte at a time: what follows the greeting is the first message, and belongs to the mesh's thread.
                byte = link.recv(1)
                if not byte:
                    break
                greeting += byte
            said = json.loads(greeting)
            # In constant time, so that strangers cannot guess the secret digit by digit.
            if secrets.compare_digest(str(said["secret"]), self._secret) and said["rank"] in missing:
                self._sockets[said["rank"]] = link
                return
        link.close()

    def start(self, listener: Listener) -> None:
        """Starts the thread that serves the connections."""
        self._listener = listener
        self._waker.setblocking(False)
        self._alarm.setblocking(False)
        # Before the thread: a child that is forked from now on must not keep the connections open.
        os.register_at_fork(after_in_child=self._drop)
        self._thread.start()

    # -------------------------------------------------------------------------------------------------------------- use
    def post(self, message: Message, to: int | None = None) -> None:
        """Sends a message to one rank or to all; takes no lock, so a signal handler may call it."""
        self._outbox.append((to, json.dumps(message).encode() + b"\n"))
        # A full pipe wakes the thread as well.
        with contextlib.suppress(OSError):
            self._alarm.send(b"!")

    def flush(self, timeout: float) -> bool:
        """Waits until all posted messages are sent; returns whether they are."""
        deadline = time.monotonic() + timeout
        while self._thread.is_alive() and (self._outbox or any(self._outgoing.values())):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)  # takes no lock that the thread may hold, so that a signal handler may wait here, too
        return True

    def close(self) -> None:
        """Ends the thread and closes all connections."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._alarm.send(b"!")
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(1.0)
        self._drop()

    def _drop(self) -> None:
        """Closes this process's sockets; a forked child must not keep the parent's connections open after the parent's death."""
        for one in (self._server, self._waker, self._alarm, *self._sockets.values()):
            with contextlib.suppress(OSError):
                one.close()

    # ----------------------------------------------------------------------------------------------------------- thread
    def _serve(self) -> None:
        assert self._listener is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._waker, selectors.EVENT_READ, None)
            for rank, link in self._sockets.items():
                selector.register(link, selectors.EVENT_READ, rank)
            due = time.monotonic()
            while not self._stopping:
                ready = selector.select(max(0.0, due - time.monotonic()))
                # Messages first, then the timer: after a suspension, the others' messages are waiting.
                for key, events in ready:
                    if key.data is None:
                        self._wake()
                        continue
                    if events & selectors.EVENT_READ and not self._read(key.data):
                        selector.unregister(key.fileobj)
                        continue
                    if events & selectors.EVENT_WRITE:
                        self._write(key.data, selector)
                self._distribute(selector)
                if time.monotonic() >= due:
                    due = self._listener.on_timer(time.monotonic())
                    self._distribute(selector)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            while self._waker.recv(_CHUNK):
                pass

    def _read(self, rank: int) -> bool:
        assert self._listener is not None
        # Until the socket is empty: messages that a rank sent before it died are handled before its disconnection.
        closed, why = False, ""
        while not closed:
            try:
                data = self._sockets[rank].recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                data, why = b"", error.strerror or str(error)
            closed = not data
            self._incoming[rank] += data
        *lines, self._incoming[rank] = self._incoming[rank].split(b"\n")
        for line in lines:
            self._listener.on_message(rank, json.loads(line))
        if closed:
            # Else `flush` would wait for messages that nobody will take.
            self._outgoing[rank].clear()
            self._sockets.pop(rank).close()
            self._listener.on_disconnect(rank, why)
        return not closed

    def _distribute(self, selector: selectors.BaseSelector) -> None:
        while self._outbox:
            to, data = self._outbox[0]
            for rank in [*self._sockets] if to is None else [to]:
                if rank in self._sockets and len(self._outgoing[rank]) < _BACKLOG:
                    self._outgoing[rank] += data
            # Removed only after the copy: `flush` must always see the message in one of the two.
            self._outbox.popleft()
        for rank in [*self._sockets]:
            if self._outgoing[rank]:
                self._write(rank, selector)

    def _write(self, rank: int, selector: selectors.BaseSelector) -> None:
        pending = self._outgoing[rank]
        try:
            while pending:
                # The socket takes what fits its buffer; the rest stays for the next time that it can be written to.
                del pending[: self._sockets[rank].send(bytes(pending[:_CHUNK]))]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # Reading reports why the connection closed, after the remaining messages.
            pending.clear()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pending else 0)
        selector.modify(self._sockets[rank], wanted, rank)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def own_address(host: str, port: int, source: str = "MASTER_ADDR") -> str:
    """Returns the address of this machine from which packets to a host are sent.

    Raises:
        RankFailedError: If the host is unknown, or no route leads to it.
    """
    try:
        found = _addresses(host, port)
        family, kind, proto, _, target = min(found, key=lambda one: one[0] != socket.AF_INET)
        with socket.socket(family, kind, proto) as probe:
            probe.connect(target)  # no packet is sent: this only looks up the route
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:  # a name that is too long, or has strange characters, is a ValueError
        unknown = isinstance(error, ValueError | socket.gaierror)
        raise RankFailedError(
            f"the address '{host}' of rank 0 " + ("is unknown" if unknown else "cannot be reached from here"),
            expected=f"in {source}, the name or IP address of rank 0's machine, which this machine knows",
            received=reason(error),
            fix="look for a typing error in MASTER_ADDR, or write the IP address of that machine",
        ) from None


def _addresses(host: str, port: int) -> list[Any]:
    """Looks a name up, again for some seconds if the name server does not answer."""
    given_up = time.monotonic() + _LOOK_UP
    while True:
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except socket.gaierror as error:
            if error.errno != socket.EAI_AGAIN or time.monotonic() >= given_up:
                raise
        time.sleep(0.1)  # a name server that starts together with the job is there soon
