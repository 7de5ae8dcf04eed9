# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed, or pause, under calls with one answer."""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402

NUM_CALLS = 8


def num_migrated(gateway):
    """The calls that have gone on at another worker, or again at their own."""
    return sum(value for series, value in fleet.scrape(gateway.metrics_address).items()
               if series.startswith("continuo_gateway_migrations_total{"))


def pause(workers, gateway, pool, ask, number):
    """That many calls, which the workers have and do not go on with until they are told to."""
    for worker in workers:
        worker.signal(signal.SIGSTOP)
    calls = [pool.submit(ask) for _ in range(number)]
    fleet.wait_until(lambda: fleet.scrape(gateway.metrics_address)["continuo_gateway_open_streams"] == number,
                     "the open calls")
    return calls


def go_on(workers):
    for worker in workers:
        worker.signal(signal.SIGCONT)


def kill_first(workers, gateway, pool, ask):
    """Kills the first worker while each of them has calls, and takes it from the list; returns all calls."""
    calls = pause(workers, gateway, pool, ask, NUM_CALLS)
    workers.pop(0).kill()
    go_on(workers)
    return calls
