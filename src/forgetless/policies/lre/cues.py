"""Words that say what kind of statement a text makes, whatever it is about: the small closed classes of a language.

Pronouns, articles, conjunctions, words of time and number, and what programs say when something went wrong. None of
them names a subject. Chinese and Japanese stand as the pairs that `forgetless.text.words` cuts them into.
"""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["CUES", "KIND_OF"]

CUES = (
    "none", "speaker", "own", "addressee", "others", "deictic", "calendar", "quantity", "article", "joint",
    "indefinite", "past", "plan", "error",
)  # fmt: skip
"""Classes of words; each word has one, `none` where no other fits."""

_WORDS = {
    "speaker": "i 我想 我在 我要 我是 私は 僕は 俺は",
    "own": "me my mine myself we us our ours im ive id ill 我的 我们 私の 僕の 私た",
    "addressee": "you your yours yourself 你的 你们 您的 你们 あな",
    "others": "he she they him her them his hers their theirs 他们 她们 他的 她的 彼は 彼女",
    "deictic": "yesterday today tomorrow tonight ago last next recently this past "
    "昨天 今天 明天 上周 下周 去年 昨日 今日 明日 先週 来週",
    "calendar": "day days week weeks weekend month months year years morning evening night since monday tuesday "
    "wednesday thursday friday saturday sunday january february march april may june july august september october "
    "november december 星期 月份 早上 晚上 曜日 午前 午後",
    "quantity": "one two three four five six seven eight nine ten few couple several many some first second third once "
    "twice half dozen hundred thousand 一个 两个 三个 一些 几个 一つ 二つ 三つ 一人 二人",
    "article": "a an the",
    "joint": "and but or so because while when if than 因为 所以 但是 如果 だから けど ので",
    "indefinite": "something someone anything anyone everything everyone nothing 什么 有人 何か 誰か",
    "past": "was were had did got went took made said 了一 过了 した った",
    "plan": "will going gonna plan planning plans want hope need must promise shall 打算 计划 需要 つも 予定",
    "error": "error errors exception traceback failed failure fail fatal denied invalid missing cannot unable "
    "undefined refused timeout warning unexpected 错误 失败 エラ 失敗",
}  # fmt: skip

KIND_OF = MappingProxyType({word: CUES.index(cue) for cue, text in _WORDS.items() for word in text.split()})
"""Word -> place of its class in `CUES`."""
