"""Read the ``.pt`` files of a checkpoint and put their tensors into modules, strictly.

A file is only ever read with ``weights_only=True``. Whatever is wrong with it becomes a CheckpointError that names the
file and, where there is one, the tensor.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor, nn

from cosyui.errors import CheckpointError
from cosyui.model.files import check_file, corrupt

LM_HEAD = "llm.model.lm_head.weight"
"""The text model's own output layer: inference never uses it (the speech head is ``llm_decoder``)."""
F0_PREFIX = "f0_predictor."
"""The F0 net of the vocoder. It runs in float64: an error of 5e-5 Hz is already visible in the wave."""

_TRAINING_KEYS = ("epoch", "step")
_ZIP_MAGIC = b"PK\x03\x04"
_SHOWN = 5
_WEIGHT_NORM_NAMES = (
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (".weight_g", ".weight_v"),
)


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.pt`` state dict by name, mapped from the file (no memory is used before they are touched).

    Leaves out the text model's ``lm_head`` and takes ``generator.`` out of names. Raises CheckpointError
    ``checkpoint_missing_file`` or ``checkpoint_corrupt``.
    """
    head = check_file(path)
    try:
        # Only the zip form of torch.save can be mapped; the old form is read whole.
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=head.startswith(_ZIP_MAGIC))
    except (
        RuntimeError,
        pickle.UnpicklingError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        EOFError,
    ) as error:
        raise corrupt(path, f"not readable as a PyTorch state dict ({_short(error)})") from error
    except OSError as error:
        raise corrupt(path, f"not readable ({error.strerror or error})") from error
    if not isinstance(state, dict):
        raise corrupt(path, f"a {type(state).__name__}, not a state dict")
    named = {name: value for name, value in state.items() if name not in _TRAINING_KEYS}
    odd = [str(name) for name, value in named.items() if not (isinstance(name, str) and isinstance(value, Tensor))]
    if odd or not named:
        what = f"the entry {odd[0]!r} is no tensor" if odd else "it holds no tensor"
        raise corrupt(path, f"not a state dict: {what}")
    return {name.replace("generator.", ""): value for name, value in named.items() if name != LM_HEAD}


def fold_weight_norm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace each weight-normed pair g (out,1,1), v (out,in,k) by ``weight`` = g * v / ||v||, norm per output channel.

    Both naming schemes of PyTorch are known. Computed in float64, returned in float32; everything of the F0 net is
    returned in float64. A half pair is left as it is, for `load_into` to name.
    """
    folded = dict(state)
    for suffix_g, suffix_v in _WEIGHT_NORM_NAMES:
        for name in [name for name in state if name.endswith(suffix_g)]:
            base = name.removesuffix(suffix_g)
            if base + suffix_v not in state:
                continue
            g, v = folded.pop(name).double(), folded.pop(base + suffix_v).double()
            norm = v.flatten(1).norm(dim=1).reshape(-1, *[1] * (v.dim() - 1))
            folded[base + ".weight"] = (g.reshape_as(norm) * v / norm).float() if not _is_f0(base) else g * v / norm
    return {name: tensor.double() if _is_f0(name) else tensor for name, tensor in folded.items()}


def load_into(
    module: nn.Module,
    state: dict[str, Tensor],
    file: Path,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> None:
    """Give ``module`` (it may live on the meta device) the tensors of ``state``; names and shapes must match exactly.

    Parameters take ``dtype``, but those that the module declares in float64 stay float64; buffers keep the type the
    module declares. Tensors are copied one by one to ``device``, so memory never holds the weights twice and does not
    depend on the file afterwards. Raises CheckpointError ``checkpoint_tensor``.
    """
    expected = module.state_dict()
    problems = _differences(expected, state)
    if problems:
        listed = "; ".join(problems[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        message = (
            f"{file} does not fit the sizes in the configuration: {len(problems)} of {len(expected)} tensors differ: "
            f"{listed}{more}. Use files of one and the same model."
        )
        raise CheckpointError("checkpoint_tensor", message)
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    converted = {}
    for name, declared in expected.items():
        keep = name not in parameters or declared.dtype == torch.float64 or not declared.is_floating_point()
        target = declared.dtype if keep else dtype
        converted[name] = state[name].to(device=device, dtype=target, copy=True)
    module.load_state_dict(converted, strict=True, assign=True)


def _differences(expected: dict[str, Tensor], state: dict[str, Tensor]) -> list[str]:
    problems = [
        f"{name} is missing (expected shape {_shape(expected[name])})" for name in expected if name not in state
    ]
    for name, tensor in state.items():
        if name not in expected:
            problems.append(f"{name} of shape {_shape(tensor)} is not part of the model")
        elif tensor.shape != expected[name].shape:
            problems.append(f"{name} has shape {_shape(tensor)}, expected {_shape(expected[name])}")
        elif tensor.is_floating_point() != expected[name].is_floating_point() or tensor.is_complex():
            problems.append(f"{name} has type {tensor.dtype}, expected {expected[name].dtype}")
    return problems


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _is_f0(name: str) -> bool:
    return name.startswith(F0_PREFIX)


def _short(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:120]
