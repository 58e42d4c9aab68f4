"""Golden checks of the flow: estimator, solver, token embedding, whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cosyui.bench.parity.deviation import Deviation
from cosyui.bench.parity.folder import EXACT, MEL, Folder
from cosyui.model.dit import Block, attention_mask, modulate
from cosyui.model.flow import time_steps


def check_dit_forward(folder: Folder) -> Iterator[Deviation]:
    golden, flow = folder.arrays("dit_forward.npz"), folder.model.flow
    net = flow.estimator
    inputs = [golden[name] for name in ("x", "mu", "t", "spks", "cond")]
    frames = golden["x"].shape[2]
    streaming = attention_mask(None, frames, flow.config.chunk_frames, folder.device)
    yield folder.near("time embedding", net.time_embed(golden["t"]), golden["time_embed"], MEL)
    x, cond, mu = (golden[name].transpose(1, 2).to(net.proj_out.weight.dtype) for name in ("x", "cond", "mu"))
    spks = golden["spks"].to(x.dtype)
    h = net.input_embed(x, cond, mu, spks)
    joined = torch.cat([x, cond, mu, spks[:, None].expand(-1, frames, -1)], -1)
    yield folder.near("input projection", net.input_embed.proj(joined), golden["input_proj"], MEL)
    yield folder.near("input embedding", h, golden["input_embed"], MEL)
    for prefix, mask in (("", None), ("stream_", streaming)):
        yield from block_taps(folder, h, golden, prefix, mask)
    yield folder.near("velocity", net(*inputs), golden["out_full"], MEL)
    yield folder.near("velocity, one row at a time", net(*[v[:1] for v in inputs]), golden["out_full"][:1], MEL)
    yield folder.near("velocity, streaming", net(*inputs, streaming), golden["out_stream"], MEL)
    inputs[2] = golden["t_alt"]
    yield folder.near("velocity, times differ", net(*inputs), golden["out_full_t_alt"], MEL)


def block_taps(
    folder: Folder, h: Tensor, golden: dict[str, Tensor], prefix: str, mask: Tensor | None
) -> Iterator[Deviation]:
    net = folder.model.flow.estimator
    time = torch.nn.functional.silu(net.time_embed(golden["t"]))
    cos, sin = net.rotary_embed(h.shape[1])
    first = net.transformer_blocks[0]
    assert isinstance(first, Block)
    shift, scale = first.attn_norm(time)[:2]
    attn_in = modulate(h, shift, scale)
    yield folder.near(f"{prefix}block 0 attention input", attn_in, golden[f"{prefix}block0_attn_in"], MEL)
    attn_out = first.attn(attn_in, cos, sin, mask)
    yield folder.near(f"{prefix}block 0 attention", attn_out, golden[f"{prefix}block0_attn_out"], MEL)
    for index, block in enumerate(net.transformer_blocks):
        h = block(h, time, cos, sin, mask)
        if f"{prefix}block{index}" in golden:
            yield folder.near(f"{prefix}block {index}", h, golden[f"{prefix}block{index}"], MEL)


def check_dit_padded(folder: Folder) -> Iterator[Deviation]:
    golden, flow = folder.arrays("dit_padded.npz"), folder.model.flow
    inputs = [golden[name] for name in ("x", "mu", "t", "spks", "cond")]
    lengths = golden["mask"][:, 0].sum(1).long()
    frames = golden["x"].shape[2]
    for name, block in (("out_full", None), ("out_stream", flow.config.chunk_frames)):
        out = flow.estimator(*inputs, attention_mask(lengths, frames, block, folder.device))
        for row, length in enumerate(lengths.tolist()):
            found, expected = out[row, :, :length], golden[name][row, :, :length]
            yield folder.near(f"{name}, row {row}", found, expected, MEL)
            alone = [v[row : row + 1, ..., :length] if v.dim() == 3 else v[row : row + 1] for v in inputs]
            found = flow.estimator(*alone, attention_mask(None, length, block, folder.device))[0]
            yield folder.near(f"{name}, row {row} alone", found, expected, MEL)


def check_cfm_solve(folder: Folder) -> Iterator[Deviation]:
    golden, flow = folder.arrays("cfm_solve.npz"), folder.model.flow
    mu, spks, cond = golden["mu"], golden["spks"], golden["cond"]
    yield folder.near("fixed noise", flow.noise[:, :, : mu.shape[2]], golden["noise"], EXACT)
    plan = time_steps(len(golden["t_steps"]))
    yield folder.near("times", torch.tensor([t for t, _ in plan], device=folder.device), golden["t_steps"], 1e-6)
    x = golden["noise"]
    zeros = torch.zeros_like
    for index, (t, dt) in enumerate(plan):
        doubled = [torch.cat([y, zeros(y)]) for y in (mu, spks, cond)]
        time = torch.full((1,), t, device=folder.device)
        velocity = flow.estimator(torch.cat([x, x]), doubled[0], time, doubled[1], doubled[2]).float()
        if f"estimator_out_step{index}" in golden:
            yield folder.near(f"velocity of step {index}", velocity, golden[f"estimator_out_step{index}"], MEL)
        guidance = flow.config.cfg_rate
        x = x + dt * ((1 + guidance) * velocity[:1] - guidance * velocity[1:])
        if f"x_step{index + 1}" in golden:
            yield folder.near(f"after step {index + 1}", x[0], golden[f"x_step{index + 1}"], MEL)
    yield folder.near("mel", flow.solve(mu, spks, cond), golden["out_full"], MEL)
    yield folder.near("mel, streaming", flow.solve(mu, spks, cond, streaming=True), golden["out_stream"], MEL)
    yield folder.near("mel, 5 steps", flow.solve(mu, spks, cond, steps=5), golden["out_full_5steps"], MEL)
    twice = [torch.cat([y, y]) for y in (mu, spks, cond)]
    short = mu.shape[2] // 2
    lengths = torch.tensor([mu.shape[2], short], device=folder.device)
    batch = flow.solve(twice[0], twice[1], twice[2], lengths)
    yield folder.near("mel, ragged batch", batch[:1], golden["out_full"], MEL)
    alone = flow.solve(mu[:, :, :short], spks, cond[:, :, :short])
    yield folder.near("mel, padded row against itself alone", batch[1:, :, :short], alone, MEL)


def check_noise_flow(folder: Folder) -> Iterator[Deviation]:
    golden = folder.arrays("noise_flow.npz")["rand_noise"]
    yield folder.near("fixed noise", folder.model.flow.noise[0, :, : golden.shape[1]], golden, EXACT)


def check_flow_prelookahead(folder: Folder) -> Iterator[Deviation]:
    golden, flow = folder.arrays("flow_prelookahead.npz"), folder.model.flow
    embedded = flow.input_embedding(golden["token"])
    yield folder.near("token embedding", embedded, golden["embedded"], EXACT)
    out = flow.pre_lookahead_layer(embedded)
    yield folder.near("without context", out, golden["out_final"], MEL)
    yield folder.near("with context", out[:, : golden["out_context"].shape[1]], golden["out_context"], MEL)
    yield folder.near("speaker", flow.project_speaker(golden["spk_embedding"]), golden["spk_proj"], MEL)


def check_flow_inference(folder: Folder) -> Iterator[Deviation]:
    golden, flow = folder.arrays("flow_inference.npz"), folder.model.flow
    token, prompt, mel, speaker = (golden[k] for k in ("token", "prompt_token", "prompt_feat", "embedding"))
    known = mel.shape[1]

    def run(rows: Tensor, *, streaming: bool = False, finalize: bool = True, prompt_mel: Tensor = mel) -> Tensor:
        lengths = torch.tensor([rows.shape[1]], device=folder.device)
        frames = torch.tensor([prompt_mel.shape[1]], device=folder.device)
        out, _ = flow(rows, lengths, prompt_mel, frames, speaker, streaming=streaming, finalize=finalize)
        found: Tensor = out[:, :, prompt_mel.shape[1] :]
        return found

    whole = torch.cat([prompt, token], 1)
    yield folder.near("whole", run(whole), golden["full_nonstream"], MEL)
    yield folder.near("whole, streaming mask", run(whole, streaming=True), golden["full_stream"], MEL)
    for length in golden["chunk_lens"].tolist():
        found = run(whole[:, : prompt.shape[1] + length], streaming=True, finalize=False)
        yield folder.near(f"chunk of {length}", found, golden[f"chunk_{length}"], MEL)
    nothing = mel[:, :0]
    count = golden["no_prompt_40"].shape[2] // flow.config.token_mel_ratio
    yield folder.near("no prompt", run(token[:, :count], prompt_mel=nothing), golden["no_prompt_40"], MEL)
    yield folder.near("one token", run(whole[:, : prompt.shape[1] + 1]), golden["one_token"], MEL)
    short = whole.shape[1] // 2
    lengths = torch.tensor([whole.shape[1], short], device=folder.device)
    both, known_rows = torch.cat([whole, whole]), torch.tensor([known, known], device=folder.device)
    batch, frames = flow(both, lengths, mel.expand(2, -1, -1), known_rows, speaker.expand(2, -1))
    yield folder.near("ragged batch", batch[:1, :, known:], golden["full_nonstream"], MEL)
    yield folder.near("padded row", batch[1:, :, known : int(frames[1])], run(whole[:, :short]), MEL)


CHECKS = {
    "dit_forward.npz": check_dit_forward,
    "dit_padded.npz": check_dit_padded,
    "cfm_solve.npz": check_cfm_solve,
    "noise_flow.npz": check_noise_flow,
    "flow_prelookahead.npz": check_flow_prelookahead,
    "flow_inference.npz": check_flow_inference,
}
