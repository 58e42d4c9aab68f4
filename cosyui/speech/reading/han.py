"""Patterns written in simplified characters that match traditional ones too."""

from __future__ import annotations

import re

from cosyui.speech.reading.rules import Reader, Rule

_PAIRS = (
    "个個张張条條只隻间間头頭辆輛台臺栋棟颗顆块塊双雙对對层層岁歲两兩号號码碼电電话話机機报報单單传傳热熱线線拨撥员員证證"
    "门門车車楼樓点點时時钟鐘周週赛賽胜勝负負赢贏输輸战戰决決届屆级級万萬亿億余餘来來几幾长長温溫气氣压壓图圖书書页頁节節"
    "课課题題项項种種类類顿頓场場阵陣发發业業学學历歷约約达達过過从從转轉铁鐵动動国國队隊联聯为為测測货貨银銀账帳户戶订訂"
    "运運递遞验驗换換请請态態邮郵编編区區频頻钱錢镑鎊欧歐韩韓寿壽纪紀毕畢结結开開亚亞当當后後晚晚数數总總创創败敗领領击擊"
    "顶頂声聲团團缕縷锅鍋寻尋询詢举舉举舉诉訴识識应應协協东東飞飛鹰鷹环環终終随隨礼禮宾賓馆館称稱华華叠疊层層处處"
)
_TRADITIONAL = {_PAIRS[index]: _PAIRS[index + 1] for index in range(0, len(_PAIRS), 2)}
_PART = re.compile(r"\\.|\[\^?\]?|\]|.", re.DOTALL)


def han(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """``pattern`` compiled; each simplified character in it stands for its traditional form as well."""
    parts: list[str] = []
    in_class = False
    for part in _PART.findall(pattern):
        if part[0] == "[" and not in_class:
            in_class = True
        elif part == "]":
            in_class = False
        other = _TRADITIONAL.get(part)
        parts.append(part if other is None else part + other if in_class else f"[{part}{other}]")
    return re.compile("".join(parts), flags)


def han_table(*rules: tuple[str, str | Reader]) -> tuple[Rule, ...]:
    """Rules from their patterns as text, for both scripts."""
    return tuple((han(pattern), replacement) for pattern, replacement in rules)
