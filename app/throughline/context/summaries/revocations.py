"""Recognising that a user takes a standing instruction back: it stands in the ledger behind the one it ends."""

import re


def start_of_revocation(sentence: str) -> int | None:
    """Where in the `sentence`, in lower case, its spaces single, it begins to end what was asked for before."""
    found = _REVOCATION.search(sentence)
    return found.start() if found else None


_RULE_EN = (
    r"(?:(?:my|the|that|this|those|these|all|any|your|last|earlier|previous|prior|old|first|above|of|other) ){1,4}"
    r"(?:rules?|instructions?|(?<=my )requests?|(?<=earlier )requests?"
    r"|preferences?|conventions?|policy|policies|restrictions?)\b"
)
_EARLIER_RULE_EN = (
    r"(?:all )?(?:of )?(?:my|your|the|that|this|those|these|last|earlier|previous|prior|above) "
    r"(?:(?:last|earlier|previous|prior|old|first|above|other) ){0,2}(?:rules?|instructions?)\b"
)
"""What "cancel" and "drop" must name: they are said of orders, policies and files too, and then for once."""
_EN = (
    rf"\b(?:forget|ignore|disregard|retract|never mind) (?:about )?"
    rf"(?:{_RULE_EN}|(?:what|everything|anything|all|whatever)(?: that)? i(?:'ve)? (?:\w+ )?(?:said|told"
    rf"|asked|wrote))"
    rf"|\b(?:cancel|drop|revoke|scrap|undo|withdraw|lift) {_EARLIER_RULE_EN}"
    rf"|{_RULE_EN}[^,.;]{{0,40}} (?:no longer (?:applies|apply|holds?|counts?)|(?:is|are) (?:cancelled"
    rf"|canceled|over|lifted"
    r"|off|void|no longer))"
    r"|\byou (?:no longer (?:have|need) to|needn't .{1,60} (?:any ?more|any longer)"
    r"|are no longer (?:required|asked|bound))"
    r"|\byou (?:don't|do not) (?:have|need) to .{1,60} (?:any ?more|any longer)\b"
    r"|\byou(?: are|'re)? (?:can|may|could|should|free to|allowed to) (?:use|write|answer|reply|respond"
    r"|speak|talk|say|format|phrase|(?:add|include|make) (?:emojis?|comments?|jokes|tables|bullet points|markdown))"
    r"\b.{0,60} again\b"
    r"|\b(?:emojis?|comments?|jokes|tables|bullet points|markdown) (?:is|are) (?:ok|okay|fine|allowed"
    r"|welcome) again"
)
_DE = (
    r"\b(?:du|sie) (?:musst|brauchst|sollst|müssen|brauchen|sollen) (?:\w+ ){0,3}nicht (?:mehr|länger)\b"
    r"|\b(?:du darfst|du kannst|sie dürfen|sie können) (?:\w+ ){0,2}wieder (?:\w+ ){0,4}(?:verwenden"
    r"|benutzen|nutzen|schreiben"
    r"|antworten|sprechen|duzen|siezen)"
    r"|\b(?:vergiss|vergessen sie|ignoriere?|ignorieren sie"
    r"|streiche?)(?: bitte)?,? (?:alles,? )?(?:was ich .{1,40}gesagt|(?:meine|die"
    r"|diese|letzte|frühere|vorige|alte)n? (?:\w+ )?(?:regeln?|anweisung(?:en)?|vorgaben?|bitte)\b)"
    r"|\b(?:regel|anweisung|vorgabe)n? (?:gilt|gelten|ist|sind) (?:ab jetzt |ab sofort "
    r"|jetzt )?(?:nicht mehr|aufgehoben|hinfällig)"
)
_FR = (
    r"\b(?:tu n'es|vous n'êtes) plus obligée?s? de|\b(?:tu n'as|vous n'avez) plus (?:besoin de|à) "
    r"|\b(?:tu peux|vous pouvez) (?:de nouveau|à nouveau) "
    r"|\b(?:oublie|oubliez|ignore|ignorez|annule|annulez) (?:tout )?(?:ce que j'ai (?:dit|demandé)"
    r"|(?:ma|mes|la|les|cette|ces) (?:\w+ )?(?:consignes?|règles?|instructions?|demandes?))"
)
_ROMANCE = (
    r"\bya no (?:tienes|hace|es|necesitas)(?: \w+)? (?:que |falta|responder|usar|necesario)|\bpuedes volver a "
    r"|\b(?:olvida|olvide|ignora|ignore|cancela|cancele|anula) (?:lo que (?:te )?(?:dije|pedí)|(?:mis?"
    r"|las?|es[ea]s?|est[ea]s?)"
    r" (?:\w+ )?(?:reglas?|instruc\w+|norma))"
    r"|\bnon (?:devi|serve|occorre) più |\b(?:puoi|potete) di nuovo "
    r"|\b(?:dimentica|ignora|annulla) (?:quello che (?:ti )?ho (?:detto|chiesto)|(?:la mia|le mie|la|le|quella) "
    r"(?:\w+ )?(?:regol[ae]|istruzion[ei]))"
    r"|\bnão precisa mais |\b(?:pode|podes) voltar a |\b(?:esqueça|esquece|ignore"
    r"|cancele) (?:o que eu (?:disse|pedi)"
    r"|(?:minhas?|as?|ess[ea]s?|aquelas?) (?:\w+ )?(?:regras?|instruç\w+))"
)
_RU = (
    r"\bбольше не (?:нужно|надо|обязательно|требуется|обязан\w*) |\b(?:снова можешь|можешь снова"
    r"|снова можно|можно снова) "
    r"|\b(?:забудь|забудьте|игнорируй|игнорируйте|отмени|отмените) (?:то,? что я|всё,? что я|(?:мо[её]"
    r"|мою|мои|это|эту|прежн\w+"
    r"|предыдущ\w+) (?:\w+ )?(?:правил\w+|инструкци\w+|указани\w+|просьб\w+))"
)
_ZH = (
    r"(?:不用|不必|不需要|无需)再[^，。]{1,20}|(?:又|重新)可以[^，。]{1,20}|可以(?:重新|再次)(?:使?用|说|写)"
    r"|(?:忘掉|忘记|忽略|取消|撤销|作废)(?:我)?(?:之前|刚才|以前|上面|那|这|前面)[^，。]{0,8}(?:规则|要求|指示|指令|说的|规定)"
    r"|(?:规则|要求|规定)(?:不再|已经?不)(?:适用|有效)"
)
_JA = (
    r"もう[^。]{1,20}なくて(?:も)?(?:いい|良い|よい|大丈夫|結構)|また[^。]{1,20}(?:ても|で)(?:いい|良い|よい)です"
    r"|(?:さっき|前|以前|先ほど|先程|これまで|その|この)(?:の|に言った)?[^。]{0,8}(?:指示|ルール|お願い|規則)(?:は|を)"
    r"(?:忘れ|無視|取り消|撤回|なかった)"
)
_REVOCATION = re.compile(f"{_EN}|{_DE}|{_FR}|{_ROMANCE}|{_RU}|{_ZH}|{_JA}")
