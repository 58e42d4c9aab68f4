"""CUDA C++ compiled when it is needed, by the compiler that comes with PyTorch, and launched on its streams.

Source of the calls: NVRTC and CUDA driver API references, "Compilation", "Module Management", "Execution Control".
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, files

import torch

NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""


class CompileError(RuntimeError):
    """No compiler, or it refused the source; carries its log."""


def compile_source(source: str, name: str, architecture: str, macros: Mapping[str, object]) -> bytes:
    """Machine code (cubin) of ``source`` for ``architecture``, such as ``sm_90``.

    Raises:
        CompileError
    """
    library = _library()
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}", "--std=c++17", "--device-as-default-execution-space"]
        options += [f"-D{key}={value}" for key, value in macros.items()]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCompileProgram(program, len(options), array):
            raise CompileError(_text(library, program, "nvrtcGetProgramLog"))
        return _bytes(library, program, "nvrtcGetCUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


class Kernel:
    """One function of a cubin on the current device, with ``shared`` bytes of shared memory that it chooses itself.

    Raises:
        CompileError: the driver does not take it.
    """

    def __init__(self, cubin: bytes, name: str, shared: int) -> None:
        torch.cuda.current_stream().synchronize()  # the context exists from here on
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._shared = shared
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, ctypes.c_char_p(name.encode()))
        self._call("cuFuncSetAttribute", self._function, MAX_DYNAMIC_SHARED, shared)

    def launch_together(self, blocks: int, threads: int, argument: ctypes.Structure) -> None:
        """All blocks at once or none, on PyTorch's current stream."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        self._call(
            "cuLaunchCooperativeKernel", self._function, blocks, 1, 1, threads, 1, 1, self._shared, stream, arguments
        )

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise CompileError(f"{name}: {(text.value or b'unknown').decode()}")


def _library() -> ctypes.CDLL:
    shipped = _shipped()
    for path in sorted(shipped, key=lambda path: "builtins" not in path):  # which the compiler looks for by name
        with contextlib.suppress(OSError):
            ctypes.CDLL(path)
    for path in (*NAMES, *shipped):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise CompileError("there is no NVRTC, which PyTorch for CUDA brings")


def _shipped() -> Sequence[str]:
    """Where the packages that PyTorch needs put it."""
    found = []
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            entries = files(package) or []
        except PackageNotFoundError:
            continue
        found += [
            str(entry.locate()) for entry in entries if entry.name.startswith(("libnvrtc.so", "libnvrtc-builtins.so"))
        ]
    return found


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CompileError(library.nvrtcGetErrorString(status).decode())


def _bytes(library: ctypes.CDLL, program: ctypes.c_void_p, name: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"{name}Size")(program, ctypes.byref(size)))
    out = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, name)(program, out))
    return out.raw


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, name: str) -> str:
    return _bytes(library, program, name).rstrip(b"\0").decode("utf-8", "replace")
