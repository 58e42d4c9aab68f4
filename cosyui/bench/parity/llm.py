"""Golden checks of the language model, its rules and its sampler."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cosyui.bench.parity.deviation import Deviation
from cosyui.bench.parity.folder import EXACT, HIDDEN, LOGITS, PROBABILITY, Folder
from cosyui.engine.decode import LengthRule, SilenceFilter, SpecialRows, decode, greedy, input_rows
from cosyui.engine.text_stream import Interleave, TextStreamError
from cosyui.model.config import SamplingConfig
from cosyui.model.sampler import draw, nucleus, repeats, sample
from cosyui.model.tokenizer import END_OF_PROMPT


def rows_of(folder: Folder, kind: Tensor, ids: Tensor) -> Tensor:
    """Embeddings (T, hidden) of rows given as table (0 text, 1 speech) and id."""
    llm = folder.model.llm
    text, speech = llm.embed_text(ids * (kind == 0)), llm.embed_speech(ids * (kind == 1))
    return torch.where(kind[:, None] == 0, text, speech)


def check_llm_forward(folder: Folder) -> Iterator[Deviation]:
    golden, llm = folder.arrays("llm_forward.npz"), folder.model.llm
    rows = rows_of(folder, golden["input_kind"], golden["input_id"])
    yield folder.near("embeddings", rows, golden["input_emb"], HIDDEN)
    hidden = llm(rows[None])[0]
    yield folder.near("hidden, one pass", hidden, golden["hidden_full"], HIDDEN)
    half = len(rows) // 2
    batch = torch.stack([rows, torch.cat([rows[:half], torch.full_like(rows[half:], 9.0)])])
    padded = llm(batch, torch.tensor([len(rows), half], device=folder.device))
    yield folder.near("hidden, batch of two", padded[0], golden["hidden_full"], HIDDEN)
    yield folder.near("hidden, padded row", padded[1, :half], golden["hidden_full"][:half], HIDDEN)
    prompt, steps = int(golden["n_prompt"]), len(golden["hidden_step"])
    cache = llm.new_cache(2, prompt + steps)
    lengths = torch.tensor([prompt, half // 2], device=folder.device)
    stepped = [llm(batch[:, :prompt], lengths, cache)[0, prompt - 1]]
    stepped += [llm(batch[:, i : i + 1], cache=cache)[0, 0] for i in range(prompt, prompt + steps - 1)]
    yield folder.near("hidden, cached steps in a ragged batch", torch.stack(stepped), golden["hidden_step"], HIDDEN)
    logits = llm.logits(hidden)
    yield folder.near("logits", logits[golden["logits_rows"]], golden["logits"], LOGITS)
    top = logits[prompt - 1 : prompt - 1 + steps].topk(golden["top8_ids"].shape[1])
    yield folder.near("logits, best of each step", top.values, golden["top8_logits"], LOGITS)
    rule = LengthRule(0, len(golden["greedy_ids"]) + 1)
    found = list(decode(llm, rows[:prompt], rule, greedy))
    yield folder.same("greedy ids and stop", found, golden["greedy_ids"].tolist())


def check_llm_greedy_maxlen(folder: Folder) -> Iterator[Deviation]:
    golden, llm = folder.arrays("llm_greedy_maxlen.npz"), folder.model.llm
    rows = rows_of(folder, golden["input_kind"], golden["input_id"])
    yield folder.near("layout", input_rows(llm, golden["text_ids"].tolist(), ()), rows, EXACT)
    rule = LengthRule.of(llm.config, len(golden["text_ids"]))
    yield folder.same("longest length", rule.maximum, len(golden["greedy_ids"]))
    found = list(decode(llm, rows, rule, greedy, upstream_minimum=True))
    yield folder.same("greedy ids", found, golden["greedy_ids"].tolist())
    ids = golden["greedy_ids"][:-1]
    hidden = llm(torch.cat([rows, llm.embed_speech(ids)])[None])[0, len(rows) - 1 :]
    yield folder.near("hidden of each step", hidden, golden["hidden_step"], HIDDEN)


def check_llm_rules(folder: Folder) -> Iterator[Deviation]:
    """Logits are scripted so that the expected ids are on top, and the special id of the case after them."""
    llm = folder.model.llm
    special = SpecialRows.of(llm.config)
    for case in folder.json("llm_rules.json"):
        rule = LengthRule.of(llm.config, case["n_text_tokens"])
        yield folder.same(f"{case['name']}: limits", (rule.minimum, rule.maximum), (case["min_len"], case["max_len"]))
        rows = torch.zeros(1, llm.config.hidden, device=folder.device)
        script = scripted_logits(case, special, llm.config.speech_vocab)
        found = list(decode(llm, rows, rule, greedy, forward=partial(next_of, script), upstream_minimum=True))
        yield folder.same(f"{case['name']}: ids", found, case["out"])


def next_of(script: Iterator[Tensor], rows: Tensor) -> Tensor:
    """A forward pass that ignores its input."""
    return next(script)


def scripted_logits(case: dict[str, Any], special: SpecialRows, vocabulary: int) -> Iterator[Tensor]:
    """Logits of each step: the expected id, but a stop id where the case ends early, and a masked sos if it has one."""
    kind = case["name"]
    stop = {"eos": special.eos, "sos": special.sos, "stop": int(kind.rsplit("_", 1)[1]) if "stop_" in kind else -1}
    for step in range(case["max_len"]):
        logits = torch.zeros(vocabulary)
        ended = step >= len(case["out"])
        logits[stop[kind.split("_")[0]] if ended else case["out"][step]] = 10.0
        if kind == "sos_before_min" and step == min(3, case["min_len"] - 1):
            logits[special.sos] = 20.0
        yield logits


def check_llm_bistream(folder: Folder) -> Iterator[Deviation]:
    config = folder.model.config.llm
    special, end = SpecialRows.of(config), folder.model.tokenizer.id_of(END_OF_PROMPT)
    for case in folder.json("llm_bistream.json"):
        cut = case["prompt_text"].index(end) + 1
        prefix, transcript = case["prompt_text"][:cut], case["prompt_text"][cut:]
        plan = Interleave(prefix, transcript, case["prompt_speech"], special, config.mix_ratio, upstream_refeed=True)
        scripted, emitted, calls, past, error = iter(case["sampler_returned"]), [], [], 0, False
        for call in plan.calls(case["text_tokens"]):
            calls.append({"past": past, "rows": [list(row) for row in call.rows]})
            past += len(call.rows)
            try:
                token = plan.answer(next(scripted) if call.forced is None else call.forced, call)
            except TextStreamError:
                error = True
                break
            if token is not None:
                emitted.append(token)
        yield folder.same(f"{case['name']}: calls", calls, case["forwards"])
        yield folder.same(f"{case['name']}: ids", emitted, case["emitted"])
        yield folder.same(f"{case['name']}: error", error, case["error"] is not None)


def check_silent_tokens(folder: Folder) -> Iterator[Deviation]:
    for index, case in enumerate(folder.json("silent_tokens.json")["cases"]):
        kept = SilenceFilter()
        yield folder.same(f"case {index}", [token for token in case["in"] if kept(token)], case["out"])


def check_sampling(folder: Folder) -> Iterator[Deviation]:
    golden = folder.arrays("sampling.npz")
    for name in sorted({key.rsplit(".", 1)[0] for key in golden}):
        case = {key.rsplit(".", 1)[1]: value for key, value in golden.items() if key.startswith(f"{name}.")}
        top_p, top_k, window, tau = case["params"].tolist()
        config = SamplingConfig(top_p, int(top_k), int(window), tau)
        probabilities = case["logp"][None].softmax(-1)
        ids, weight = nucleus(probabilities, config.top_p, config.top_k)
        size = int((weight > 0).sum())
        yield folder.same(f"{name}: nucleus", ids[0, :size].tolist(), case["nucleus_ids"].tolist())
        share = weight[0, :size].double() / weight[0, :size].double().sum()
        yield Deviation(f"{name}: shares", float((share - case["nucleus_prob"]).abs().max()), PROBABILITY)
        triggers = repeats(ids[0, :size], case["history"].expand(size, -1), config)
        yield folder.same(f"{name}: repeats", triggers.int().tolist(), case["repeat_trigger"].tolist())
        yield Deviation(f"{name}: final distribution", final_error(case, config), PROBABILITY)


def final_error(case: dict[str, Tensor], config: SamplingConfig) -> float:
    """Deviation of the distribution that `sample` draws from, read off its own draws' thresholds."""
    logits, history = case["logp"][None], case["history"][None]
    probabilities = logits.softmax(-1)
    ids, weight = nucleus(probabilities, config.top_p, config.top_k)
    size = int((weight > 0).sum())
    share = weight[0, :size].double() / weight[0, :size].double().sum()
    total = torch.zeros(len(case["logp"]), dtype=torch.float64, device=logits.device)
    edges = torch.cat([share.new_zeros(1), share.cumsum(0)])
    for rank in range(size):
        middle = (edges[rank] + edges[rank + 1]) / 2
        uniforms = torch.stack([middle, middle.new_tensor(0.5)])[None]
        token = int(sample(logits, history, uniforms, config))
        if token == int(ids[0, rank]) and not bool(repeats(ids[:, rank], history, config)):
            total[token] += share[rank]
            continue
        rest = probabilities[0].double().scatter(0, ids[0, rank], 0.0)
        total += share[rank] * rest / rest.sum()
        if token != int(draw(rest[None], uniforms[:, 1])):
            return float("inf")
    return float((total - case["final_prob"]).abs().max())


CHECKS = {
    "llm_forward.npz": check_llm_forward,
    "llm_greedy_maxlen.npz": check_llm_greedy_maxlen,
    "llm_rules.json": check_llm_rules,
    "llm_bistream.json": check_llm_bistream,
    "silent_tokens.json": check_silent_tokens,
    "sampling.npz": check_sampling,
}
