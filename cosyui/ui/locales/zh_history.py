"""历史页的中文：按钮和输入框的标签，以及服务器在那里说的话。"""

LABELS = {
    "tab_history": "历史",
    "past_takes": "我的合成记录",
    "past_search": "在文本中搜索",
    "past_search_placeholder": "输入词语或其中几个字",
    "past_starred": "只看收藏",
    "past_reuse": "再次使用",
    "past_remove": "删除",
    "past_clear": "删除我的全部记录",
    "past_clear_sure": "确认全部删除，包括收藏",
    "past_choose": "选一条，即可试听、再次使用、收藏或删除。",
    "past_hint": "只有你自己能看到。音频文件过一段时间会被清理，收藏的会保留；在这里删除后，音频和样本会立即一并删除。",
}

LIVE = {
    "past_none": "还没有记录，合成后会出现在这里。",
    "past_nothing_found": "没有符合条件的记录。",
    "past_rows": "第 {first}–{last} 条，共 {total} 条",
    "past_open": "试听这一条",
    "past_star": "收藏",
    "past_unstar": "取消收藏",
    "past_expired": "已过期",
    "past_expired_note": "音频文件已被清理。点“再次使用”即可重做：文本、音色和种子相同，结果也相同。",
    "past_no_clip": "这条记录的样本已经不在了，请重新上传，其余内容已填好。",
    "past_refilled": "已按原样填好，点“开始合成”会得到同样的结果。",
    "past_removed": "已删除。",
    "past_cleared": "已删除 {count} 条记录。",
    "past_first": "首包 {seconds:.2f} 秒",
    "past_rtf": "RTF {rtf:.2f}",
    "past_speed": "{speed:g} 倍速",
    "past_seed": "种子 {seed}",
    "past_seconds": "{seconds:.1f} 秒",
    "past_transcript": "录音里说的话",
    "past_instruction": "怎么说",
}
