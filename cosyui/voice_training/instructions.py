"""Instructions the LLM sees in training. Only speed is taught; the others are seen so that they do no harm."""

from __future__ import annotations

from dataclasses import dataclass

from cosyui.model.tokenizer import END_OF_PROMPT, TextTokenizer

SYSTEM = "You are a helpful assistant."

FAST = (
    "请用尽可能快地语速说一句话。", "请说得快一点。", "语速快一点。", "用快速的语气说。",
    "Please speak as fast as possible.", "Speak faster.", "Please say it quickly.",
)  # fmt: skip
SLOW = (
    "请用尽可能慢地语速说一句话。", "请说得慢一点。", "语速慢一点。", "用缓慢的语气说。",
    "Please speak as slowly as possible.", "Speak slower.", "Please say it slowly.",
)  # fmt: skip
OTHER = (
    "请用广东话表达。", "请用东北话表达。", "请用四川话表达。", "请用上海话表达。", "请用河南话表达。",
    "请非常开心地说一句话。", "请非常伤心地说一句话。", "请非常生气地说一句话。", "用开心的语气说。",
    "用平静的语气说。",
    "Please speak in a happy tone.", "Speak calmly.", "Please say a sentence in a very soft voice.",
    "Please say a sentence as loudly as possible.", "Say it in a serious voice.", "Speak like a news reader.",
    "Please speak with a cheerful tone.", "我想体验一下小猪佩奇风格，可以吗？", "你可以尝试用机器人的方式解答吗？",
    "Please read this aloud.", "用新闻播报的方式说。", "Speak softly and kindly.",
)  # fmt: skip


@dataclass(frozen=True)
class PromptIds:
    """Text ids of the system prompt, of the token that ends it, and of system prompts with an instruction."""

    system: tuple[int, ...]
    end: int
    fast: tuple[tuple[int, ...], ...]
    slow: tuple[tuple[int, ...], ...]
    other: tuple[tuple[int, ...], ...]


def prompt_ids(tokenizer: TextTokenizer) -> PromptIds:
    """All of them, each instruction with and without a blank before it."""

    def encoded(texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(tokenizer.encode(f"{SYSTEM}{gap}{text}")) for text in texts for gap in (" ", ""))

    system, end = tuple(tokenizer.encode(SYSTEM)), tokenizer.id_of(END_OF_PROMPT)
    return PromptIds(system, end, encoded(FAST), encoded(SLOW), encoded(OTHER))
