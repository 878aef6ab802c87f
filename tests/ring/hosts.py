"""Several hosts on one machine: network namespaces joined by a lossy network.

Each host has a name and an address of its own. Packets between them pass
through a relay in this process, which delays each one and loses some, since
kernels differ in whether they can do that by themselves (tc netem). Needs root,
ip of iproute2, unshare, and /dev/net/tun.
"""

import fcntl
import heapq
import os
import pathlib
import random
import select
import struct
import subprocess
import threading
import time

# From linux/if_tun.h: a device of IP packets without a header before them.
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001


class Unavailable(Exception):
    """This machine does not allow namespaces or TUN devices."""


def run(*command: str) -> None:
    """Runs a command; what it says becomes the reason if it fails."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{' '.join(command)}: {error.stderr.strip()}") from error


class Network:
    """So many hosts, 10.77.0.1 and on, for the length of a `with`."""

    def __init__(self, count: int, delay: float, loss: float) -> None:
        self.names = [f"lr{os.getpid()}h{n}" for n in range(count)]
        self.delay = delay
        self.loss = loss
        self.devices: list[int] = []
        self.carried = 0
        self.lost = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._relay, daemon=True)

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host + 1}"

    def __enter__(self) -> "Network":
        try:
            for host, name in enumerate(self.names):
                self._add(host, name)
        except BaseException:
            self.__exit__()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for device in self.devices:
            os.close(device)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def _add(self, host: int, name: str) -> None:
        run("ip", "netns", "add", name)
        try:
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            self.devices.append(device)
            request = struct.pack("16sH", name.encode(), IFF_TUN_NO_PI)
            fcntl.ioctl(device, TUNSETIFF, request)
        except OSError as error:
            raise Unavailable(f"/dev/net/tun: {error.strerror}") from error
        run("ip", "link", "set", name, "netns", name)
        inside = ("ip", "-n", name)
        run(*inside, "addr", "add", f"{self.address(host)}/24", "dev", name)
        run(*inside, "link", "set", name, "up")
        run(*inside, "link", "set", "lo", "up")

    def _relay(self) -> None:
        """Reads packets, holds each for the delay, and writes it to its host."""
        dice = random.Random(1)
        waiting: list[tuple[float, int, int, bytes]] = []
        while not self._stop.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, device, packet = heapq.heappop(waiting)
                try:
                    os.write(device, packet)
                except BlockingIOError:
                    self.lost += 1  # a full queue loses packets, too
            pause = min(waiting[0][0] - now, 0.05) if waiting else 0.05
            for device in select.select(self.devices, [], [], pause)[0]:
                packet = os.read(device, 65536)
                # IPv4 within 10.77.0.0/24; byte 19 ends the target's address.
                target = packet[19] - 1
                if packet[0] >> 4 != 4 or not 0 <= target < len(self.devices):
                    continue
                self.carried += 1
                if dice.random() < self.loss:
                    self.lost += 1
                    continue
                due = time.monotonic() + self.delay
                entry = (due, self.carried, self.devices[target], packet)
                heapq.heappush(waiting, entry)

    def write_agent(self, folder: pathlib.Path) -> pathlib.Path:
        """What mpirun calls instead of ssh: agent.sh ADDRESS COMMAND..."""
        agent = folder / "agent.sh"
        lines = ["#!/bin/sh", "host=$1; shift", "case $host in"]
        for host, name in enumerate(self.names):
            lines.append(f"  {self.address(host)}) name={name};;")
        lines += [
            "esac",
            'exec ip netns exec "$name" unshare --uts \\',
            """  sh -c 'hostname "$0"; eval "$*"' "$name" "$@\"""",
        ]
        agent.write_text("\n".join(lines) + "\n")
        agent.chmod(0o755)
        return agent
