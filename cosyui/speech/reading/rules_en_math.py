"""English: formulas and the signs of arithmetic, comparison and the Greek letters in them."""

from __future__ import annotations

import re

from cosyui.speech.reading.rules import table
from cosyui.speech.reading.rules_en_amounts import N

_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau",
    "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "gamma", "Δ": "delta", "∆": "delta",
    "Θ": "theta", "Λ": "lambda", "Π": "pi", "Σ": "sigma", "Φ": "phi", "Ψ": "psi", "Ω": "omega",
}  # fmt: skip
_SIGNS = {
    "≠": "is not equal to", "≈": "is about", "≅": "is congruent to", "≡": "is equivalent to",
    "≥": "is greater than or equal to", "≤": "is less than or equal to", "±": "plus or minus", "∓": "minus or plus",
    "×": "times", "÷": "divided by", "√": "the square root of", "∛": "the cube root of", "∞": "infinity",
    "∑": "the sum of", "∏": "the product of", "∫": "the integral of", "∂": "partial", "∈": "is in", "∉": "is not in",
    "∪": "union", "∩": "intersection", "∅": "the empty set", "∀": "for all", "∃": "there exists", "∵": "because",
    "∴": "therefore", "∠": "angle", "⊥": "is perpendicular to", "∥": "is parallel to", "∝": "is proportional to",
    "→": "to", "⇒": "implies", "&": "and", "§": "section", "®": "", "™": "", "©": "copyright",
}  # fmt: skip


def _power(match: re.Match[str]) -> str:
    exponent = match[1].strip("()")
    named = {"2": " squared", "3": " cubed"}.get(exponent)
    return named or f" to the power of {exponent.replace('-', 'minus ').replace('+', '')}"


_LEFT = r"(?<=[0-9A-Za-z)π])"
MATH = table(
    (rf"(?<![0-9A-Za-z.])({N})[eE]([+-]?[0-9]{{1,3}})(?![0-9A-Za-z])", r"\1 × 10^\2"),
    (r"(?<=[A-Za-z0-9)])\^\(([0-9]?)([+-])\)", lambda m: f" {m[1]} {'plus' if m[2] == '+' else 'minus'}"),
    (rf"{_LEFT} ?\^ ?(\(?[-+]?(?:[0-9]{{1,16}}|[a-z](?![a-z]))\)?)", _power),
    (r" ?(?:-+>|=+>) ?", " to "),
    (r">=", "≥"),
    (r"<=(?!>)", "≤"),
    (r"!=", "≠"),
    (r"(?<![0-9A-Za-z)] )(?<![0-9A-Za-z)])([≥≤<>≈~]) ?(?=[-$]?[0-9])",
     lambda m: {"≥": "at least ", "≤": "at most ", "<": "less than ", ">": "more than "}.get(m[1], "about ")),
    (rf"{_LEFT} ?= ?-(?=[0-9A-Za-z])", " equals minus "),
    (r"(?<=[^\s=]) ?={1,3} ?(?=[^\s=])", " equals "),
    (rf"{_LEFT} ?<{{1,2}} ?(?=[0-9A-Za-z(-])", " is less than "),
    (rf"{_LEFT} ?>{{1,2}} ?(?=[0-9A-Za-z(-])", " is greater than "),
    (r"(?<=[0-9]) [xX] (?=[0-9])", " times "),
    (rf"{_LEFT} ?\* ?(?=[0-9A-Za-z(])", " times "),
    (r"(?<=[A-Za-z])\+\+(?![0-9A-Za-z])", " plus plus"),
    (rf"{_LEFT} ?\+ ?(?=[0-9A-Za-z(]|$|[ ,.;!?])|\+(?=[0-9])", " plus "),
    (rf" ?([{''.join(_SIGNS)}]) ?", lambda m: f" {_SIGNS[m[1]]} ".replace("  ", " ")),
    (rf"(?<![\u0370-\u03ff])([{''.join(_GREEK)}])(?![\u0370-\u03ff])", lambda m: f" {_GREEK[m[1]]} "),
    (r"\b(is|are|was) is (?=about|greater|less|not)", r"\1 "),
)  # fmt: skip


def _formula(match: re.Match[str]) -> str:
    """In a run with a relation, - and / between operands are arithmetic."""
    if not re.search("[=≠≈]", match[0]):
        return match[0]
    text = re.sub(r"(?<=[0-9])(?=[a-z](?![a-z]))", " ", match[0])
    return re.sub(r"(?<=[0-9A-Za-z)]) ?- ?(?=[0-9A-Za-z(])", " minus ",
                  re.sub(r"(?<=[0-9A-Za-z)]) ?/ ?(?=[0-9A-Za-z(])", " divided by ", text))  # fmt: skip


# Possessive, so that there is one way to read a run: with two for each operand a long one would take for ever.
_OPERAND = (
    r"[-√(]{0,3}+(?:(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}(?![0-9])|[0-9]++)(?:\.[0-9]++)?|[A-Za-z]{1,2}+[0-9]?+)"
    r"(?:\^\(?-?[0-9a-z]{1,3}+\)?+)?[A-Za-z]?+\){0,3}+"
)
FORMULAS = table(
    (rf"(?<![A-Za-z0-9.])(?:{_OPERAND} ?+(?:[-+*/×÷]|==?|≠|≈) ?){{1,20}}(?<=[=≠≈ ]){_OPERAND}(?![A-Za-z0-9])",
     _formula),
    (rf"(?<![A-Za-z0-9.]){N} (-) (?={N}(?![0-9A-Za-z]))", lambda m: m[0].replace("-", "minus")),
)  # fmt: skip
