"""Processes, memory and load."""

import os
import subprocess
import sys
import threading

import pytest

from cosyui.ops import monitor as monitor_module
from cosyui.ops.monitor import Monitor
from cosyui.ops.nvml import Nvml


class NoGpu:
    class NVMLError(Exception):
        pass


def test_monitor_follows_a_process_that_ends():
    monitor = Monitor(Nvml(NoGpu))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        sample = monitor.sample(child.pid)
        assert sample.process.pid == os.getpid()
        assert sample.process.rss > 1 << 20
        assert sample.engine.pid == child.pid
        assert 0 < sample.ram_available <= sample.ram_total
        child.communicate(b"\n")
    assert monitor.sample(child.pid).engine is None
    assert monitor.sample().engine is None


def test_load_is_that_since_the_last_sample_whichever_thread_asks(monkeypatch):
    times = iter([(10.0, 100.0), (12.5, 105.0), (12.5, 105.0), (5.0, 110.0)])
    monkeypatch.setattr(monitor_module, "_cpu_seconds", lambda: next(times))
    monitor = Monitor(Nvml(NoGpu))
    loads = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: loads.append(monitor.sample().cpu_percent))
        thread.start()
        thread.join()
    assert loads == [50.0, 0.0, 0.0]


def test_busy_seconds_are_part_of_all():
    busy, total = monitor_module._cpu_seconds()
    assert 0 < busy <= total == pytest.approx(total)
