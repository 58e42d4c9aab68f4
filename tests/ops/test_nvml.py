"""What NVML tells of the GPUs, and what is left of it when some of it fails."""

from dataclasses import fields
from types import SimpleNamespace

import pytest

from cosyui.ops.nvml import FIRST_PAUSE, LONGEST_PAUSE, GpuSample, Nvml, find_gpu

MIB = 1 << 20
OURS, THEIRS = 10, 20
LOST, NOT_SUPPORTED = 15, 3
FIGURES = {field.name for field in fields(GpuSample)} - {"uuid", "name", "throttle", "bus_id", "parent", "lost"}


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value


class Driver:
    """A pynvml with ``uuids`` for GPUs; ``broken`` maps a question, or all of them (``*``), to an error code."""

    NVMLError = NVMLError
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, *uuids, slices=0):
        self.uuids = list(uuids)
        self.slices = slices
        self.broken = {}
        self.gone = set()
        self.calls = []
        self.processes = [SimpleNamespace(pid=OURS, usedGpuMemory=300), SimpleNamespace(pid=THEIRS, usedGpuMemory=9)]

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def ask(*args):
            self.calls.append(name[4:])
            code = self.broken.get(name[4:], self.broken.get("*"))
            if code is None and args and args[0] in self.gone:
                code = LOST
            if code is not None:
                raise NVMLError(code)
            return getattr(self, name[4:])(*args)

        return ask

    def Init(self): ...  # noqa: N802

    Shutdown = Init

    def DeviceGetCount(self):  # noqa: N802
        return len(self.uuids)

    def DeviceGetHandleByIndex(self, index):  # noqa: N802
        return self.uuids[index]

    def DeviceGetUUID(self, handle):  # noqa: N802
        return handle.encode()

    def DeviceGetName(self, handle):  # noqa: N802
        return f"card {handle}"

    def DeviceGetPciInfo(self, handle):  # noqa: N802
        return SimpleNamespace(busId=f"00000000:0{self.uuids.index(handle) + 1}:00.0")

    def DeviceGetMemoryInfo(self, handle, version=None):  # noqa: N802
        return SimpleNamespace(used=500, total=1000, reserved=50) if version else SimpleNamespace(used=550, total=1000)

    def DeviceGetUtilizationRates(self, handle):  # noqa: N802
        return SimpleNamespace(gpu=70, memory=30)

    def DeviceGetTemperature(self, handle, sensor):  # noqa: N802
        return 61

    def DeviceGetPowerUsage(self, handle):  # noqa: N802
        return 250_500

    def DeviceGetEnforcedPowerLimit(self, handle):  # noqa: N802
        return 700_000

    def DeviceGetClockInfo(self, handle, which):  # noqa: N802
        return {1: 1980, 2: 3201}[which]

    def DeviceGetCurrentClocksEventReasons(self, handle):  # noqa: N802
        return 0x1 | 0x4 | 0x40

    def DeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return 0x4

    def DeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return self.processes

    def DeviceGetMigMode(self, handle):  # noqa: N802
        return [bool(self.slices), False]

    def DeviceGetMaxMigDeviceCount(self, handle):  # noqa: N802
        return 7

    def DeviceGetMigDeviceHandleByIndex(self, handle, index):  # noqa: N802
        if index >= self.slices:
            raise NVMLError(6)
        return f"MIG-{handle}-{index}"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_all_figures():
    (gpu,) = Nvml(Driver("GPU-a")).gpus((OURS,))
    assert (gpu.uuid, gpu.name, gpu.bus_id, gpu.parent) == ("GPU-a", "card GPU-a", "00000000:01:00.0", None)
    assert (gpu.used, gpu.total, gpu.reserved, gpu.free, gpu.others) == (500, 1000, 50, 450, 200)
    assert (gpu.utilisation, gpu.memory_utilisation, gpu.temperature) == (70, 30, 61)
    assert (gpu.power, gpu.power_limit, gpu.sm_clock, gpu.memory_clock) == (250.5, 700.0, 1980, 3201)
    assert gpu.throttle == ("power_cap", "thermal_by_hardware")
    assert not gpu.lost


@pytest.mark.parametrize("code", [NOT_SUPPORTED, 4, 999])
@pytest.mark.parametrize(
    ("question", "figures"),
    [
        ("DeviceGetUtilizationRates", {"utilisation", "memory_utilisation"}),
        ("DeviceGetTemperature", {"temperature"}),
        ("DeviceGetMemoryInfo", {"used", "total", "reserved", "others"}),
        ("DeviceGetComputeRunningProcesses", {"others"}),
        ("DeviceGetPowerUsage", {"power"}),
        ("DeviceGetEnforcedPowerLimit", {"power_limit"}),
        ("DeviceGetClockInfo", {"sm_clock", "memory_clock"}),
        ("DeviceGetUUID", set()),
        ("DeviceGetName", set()),
        ("DeviceGetPciInfo", set()),
        ("DeviceGetMigMode", set()),
    ],
)
def test_each_figure_falls_back_by_itself(question, figures, code):
    driver = Driver("GPU-a")
    driver.broken[question] = code
    (gpu,) = Nvml(driver).gpus((OURS,))
    assert {name for name in FIGURES if getattr(gpu, name) is None} == figures
    assert not gpu.lost


def test_a_module_without_a_function_and_memory_of_an_old_driver():
    driver = Driver("GPU-a")
    known = ["Init", "DeviceGetCount", "DeviceGetHandleByIndex", "DeviceGetMemoryInfo"]
    known.append("DeviceGetCurrentClocksThrottleReasons")
    old = SimpleNamespace(NVMLError=NVMLError, **{f"nvml{name}": getattr(driver, f"nvml{name}") for name in known})
    (gpu,) = Nvml(old).gpus()
    assert (gpu.used, gpu.total, gpu.reserved, gpu.free) == (550, 1000, None, 450)
    assert (gpu.name, gpu.temperature, gpu.throttle) == ("GPU", None, ("power_cap",))


@pytest.mark.parametrize(
    "processes", [None, [], [SimpleNamespace(pid=4, usedGpuMemory=5)], [SimpleNamespace(pid=OURS, usedGpuMemory=None)]]
)
def test_others_are_unknown_where_our_own_process_is_not_told(processes):
    driver = Driver("GPU-a")
    driver.processes = processes
    assert Nvml(driver).gpus((OURS,))[0].others is None


def test_without_library_or_driver_there_are_no_gpus(monkeypatch, clock):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert Nvml().gpus() == ()
    driver = Driver("GPU-a")
    driver.broken["*"] = 9
    assert Nvml(driver, clock).gpus() == ()


def test_a_missing_driver_is_asked_for_after_growing_pauses_and_found_when_it_comes(clock):
    driver = Driver("GPU-a")
    driver.broken["Init"] = 9
    nvml = Nvml(driver, clock)
    for second in range(3600):
        clock.now = float(second)
        assert nvml.gpus() == ()
    tries = driver.calls.count("Init")
    assert 10 < tries < 20
    driver.broken.clear()
    clock.now += LONGEST_PAUSE
    assert [gpu.uuid for gpu in nvml.gpus()] == ["GPU-a"]


def test_a_gpu_that_vanishes_stays_in_the_list_and_comes_back(clock):
    driver = Driver("GPU-a", "GPU-b")
    nvml = Nvml(driver, clock)
    assert [gpu.lost for gpu in nvml.gpus()] == [False, False]
    driver.gone = {"GPU-b"}
    for second in range(1, 60):
        clock.now = float(second)
        first, second_gpu = nvml.gpus()
        assert (first.uuid, first.used, first.lost) == ("GPU-a", 500, False)
        assert second_gpu == GpuSample("GPU-b", "card GPU-b", bus_id=second_gpu.bus_id, lost=True)
    assert driver.calls.count("Init") < 6
    driver.gone = set()
    clock.now += LONGEST_PAUSE
    assert [gpu.lost for gpu in nvml.gpus()] == [False, False]


def test_a_driver_that_goes_away_takes_nothing_down(clock):
    driver = Driver("GPU-a")
    nvml = Nvml(driver, clock)
    nvml.gpus()
    driver.broken["*"] = 1
    for second in range(1, 100):
        clock.now = float(second)
        (gpu,) = nvml.gpus()
        assert (gpu.uuid, gpu.lost) == ("GPU-a", True)
    driver.broken.clear()
    clock.now += LONGEST_PAUSE
    (gpu,) = nvml.gpus()
    assert (gpu.used, gpu.lost) == (500, False)
    driver.broken["DeviceGetTemperature"] = 999
    clock.now += 1
    assert nvml.gpus()[0].temperature is None
    # Healthy again, so that the next failure is answered soon.
    driver.broken["*"] = 1
    nvml.gpus()
    driver.broken.clear()
    clock.now += FIRST_PAUSE
    assert nvml.gpus()[0].used == 500


def test_slices_stand_in_the_place_of_their_gpu():
    driver = Driver("GPU-a", slices=2)
    driver.broken["DeviceGetUtilizationRates"] = NOT_SUPPORTED
    slices = Nvml(driver).gpus((OURS,))
    assert [gpu.uuid for gpu in slices] == ["MIG-GPU-a-0", "MIG-GPU-a-1"]
    assert {(gpu.parent, gpu.used, gpu.utilisation, gpu.temperature) for gpu in slices} == {("GPU-a", 500, None, 61)}


def test_closed_means_closed(clock):
    driver = Driver("GPU-a")
    nvml = Nvml(driver, clock)
    nvml.gpus()
    nvml.close()
    nvml.close()
    clock.now += 1000
    assert nvml.gpus() == ()
    assert driver.calls.count("Shutdown") == 1


@pytest.mark.parametrize(
    ("identifier", "found"),
    [
        ("GPU-1234-a", "GPU-1234-a"),
        ("1234-A", "GPU-1234-a"),
        ("GPU-56", "GPU-5678-b"),
        ("MIG-9", "MIG-9abc"),
        ("0000:02:00.0", "GPU-5678-b"),
        ("MIG-GPU-1234-a/1/0", None),
        ("GPU-", None),
        ("", None),
        ("0", None),
        ("99", None),
    ],
)
def test_the_gpu_of_the_model_is_found_by_what_names_it(identifier, found):
    gpus = (
        GpuSample("GPU-1234-a", "one", bus_id="00000000:01:00.0"),
        GpuSample("GPU-5678-b", "two", bus_id="00000000:02:00.0"),
        GpuSample("MIG-9abc", "slice", bus_id="00000000:03:00.0"),
    )
    gpu = find_gpu(gpus, identifier)
    assert (gpu.uuid if gpu else None) == found
    assert find_gpu((*gpus, GpuSample("GPU-1234-c", "twin")), "1234") is None
