"""Chinese: formulas and the signs of arithmetic, comparison and the Greek letters in them."""

from __future__ import annotations

import re

from cosyui.speech.reading.han import han_table
from cosyui.speech.reading.rules import N, table

_RELATION = "==|!=|<=|>=|=|≠|≈|≒|≡|<|>|≤|≥"
# Possessive, so that there is one way to read a run: with two for each operand a long one would take for ever.
_OPERAND = (
    r"[-√(]{0,3}+(?:[0-9]++(?:\.[0-9]++)?|[A-Za-z]{1,4}+[0-9]?+|[πα-ω])"
    r"(?:\^\(?-?[0-9a-z]{1,3}+\)?+)?[A-Za-zπ]?+\){0,3}+"
)
_FORMULA = rf"(?<![A-Za-z0-9.]){_OPERAND}(?: ?+(?:{_RELATION}|[-+*/×÷·±]) ?{_OPERAND}){{1,30}}(?![A-Za-z0-9])"
_OPERATORS = {"-": "减", "*": "乘", "·": "乘", "/": "除以"}


def _formula(match: re.Match[str]) -> str:
    """In a run with a relation, - * / between operands are arithmetic, not a span, a mark or a date."""
    text = match[0]
    if not re.search(_RELATION, text):
        return text
    text = re.sub(r"(?<![0-9.])([0-9]{1,3})/([0-9]{1,3})(?![0-9.])", _proper_fraction, text)
    text = re.sub(r"(?<=[A-Za-z0-9)π]) ?([-*·/]) ?(?=[A-Za-z0-9(√π-])", lambda m: _OPERATORS[m[1]], text)
    return re.sub(r"(?<![A-Za-z0-9)])-(?=[A-Za-z0-9(])", "负", text)


def _proper_fraction(match: re.Match[str]) -> str:
    return f"{match[1]}⁄{match[2]}" if int(match[1]) < int(match[2]) else match[0]


FORMULAS = table(
    (_FORMULA, _formula),
    # Before a number alone: <5%, ~5kg.
    (r"(?<![\w)）%‰℃℉°])([<>~])(?![<>=-]) ?(?=[-¥$€]?[0-9])", lambda m: {"<": "小于", ">": "大于"}.get(m[1], "约")),
)

_GREEK = {
    "α": "阿尔法", "β": "贝塔", "γ": "伽马", "δ": "德尔塔", "ε": "艾普西隆", "ζ": "泽塔", "η": "伊塔", "θ": "西塔",
    "κ": "卡帕", "λ": "兰姆达", "μ": "缪", "ν": "纽", "ξ": "克西", "π": "派", "ρ": "柔", "σ": "西格玛", "τ": "陶",
    "φ": "斐", "ϕ": "斐", "χ": "卡", "ψ": "普西", "ω": "欧米伽", "Γ": "伽马", "Δ": "德尔塔", "∆": "德尔塔", "Θ": "西塔",
    "Λ": "兰姆达", "Π": "派", "Σ": "西格玛", "Φ": "斐", "Ψ": "普西", "Ω": "欧米伽",
}  # fmt: skip
_SIGNS = {
    "≥": "大于等于", "≤": "小于等于", "≠": "不等于", "≈": "约等于", "≒": "约等于", "≅": "全等于", "≡": "恒等于",
    "≫": "远大于", "≪": "远小于", "∝": "正比于", "±": "正负", "∓": "负正", "×": "乘", "÷": "除以", "√": "根号",
    "∛": "三次根号", "∞": "无穷大", "∑": "求和", "∏": "求积", "∫": "积分", "∂": "偏", "∈": "属于", "∉": "不属于",
    "⊂": "包含于",
    "⊆": "包含于", "∪": "并", "∩": "交", "∅": "空集", "∀": "任意", "∃": "存在", "∵": "因为", "∴": "所以", "∠": "角",
    "⊥": "垂直于", "∥": "平行于", "→": "到", "⇒": "推出", "↔": "和", "&": "和", "§": "第", "℃": "摄氏度", "℉": "华氏度",
}  # fmt: skip


def _power(match: re.Match[str]) -> str:
    exponent = match[1].strip("()")
    if exponent in ("2", "3"):
        return "的平方" if exponent == "2" else "的立方"
    return f"的{exponent.replace('-', '负').replace('+', '')}次方"


MATH = han_table(
    (rf"(?<![0-9A-Za-z.])({N})[eE]([+-]?[0-9]{{1,3}})(?![0-9A-Za-z])", r"\1乘10^\2"),
    (r"(?<=[A-Za-z0-9)])\^\(([0-9]?)([+-])\)",
     lambda m: f"{m[1] + '价' if m[1] else ''}{'正' if m[2] == '+' else '负'}离子"),
    (r"(?<=[A-Za-z0-9)）π]) ?\^ ?(\(?[-+]?(?:[0-9]{1,16}|[a-z](?![a-z]))\)?)", _power),
    (r" ?(?:<->|<=>) ?", "和"),
    (r" ?(?:-+>|=+>) ?", "到"),
    (r" ?>= ?", "≥"),
    (r" ?<= ?(?![=>])", "≤"),
    (r"(?<=[0-9n])!=(?=[0-9])", "的阶乘="),
    (r" ?!= ?", "≠"),
    (r" ?([≥≤≠≈≒≅≡≫≪∝±∓×÷√∛∞∑∏∫∂∈∉⊂⊆∪∩∅∀∃∵∴∠⊥∥→⇒↔]) ?", lambda m: _SIGNS[m[1]]),
    (r"(?<=[^\s=]) ?={1,3} ?(?=[^\s=])", "等于"),
    (r"(?<=[\w)）]) ?<{1,2} ?(?=[\w(（-])", "小于"),
    (r"(?<=[\w)）]) ?>{1,2} ?(?=[\w(（-])", "大于"),
    (r"(?<![0-9A-Za-z.])([1-9][0-9]{0,4}(?:\.[0-9]+)?) ?[xX*] ?(?=[1-9])", r"\1乘"),
    (r"(?<=[0-9A-Za-z)）]) ?\* ?(?=[0-9A-Za-z(（])", "乘"),
    (r"(?<=[A-Za-z])\+\+(?![0-9A-Za-z])", "加加"),
    (r"(?<=[\w)）]) ?\+ ?(?=[\w(（]|$|[，。！？；、的])|\+(?=[0-9])", "加"),
    (rf"(?<![\u0370-\u03ff])([{''.join(_GREEK)}])(?![\u0370-\u03ff])", lambda m: _GREEK[m[1]]),
    (r"[&§℃℉]", lambda m: _SIGNS[m[0]]),
)  # fmt: skip
