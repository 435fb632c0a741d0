"""The words of standing instructions in nine languages: what orders, what lasts, what ties an order to the moment.

Each table has lines `name: pattern`, which go on in the next line behind `|` or `(`; `<name>` stands for the pattern of
that name. `standing_instructions.py` says what the names mean and compiles them.
"""

TEXTS = r"""
answers|replies|responses|messages|explanations|summaries|outputs?|comments|code|commit messages|commits|emails
|sentences|(?:variable |function |branch )?names|functions|tests|docs|documentation|lists|dates|times|prices|amounts
|numbers|headings|error messages|migrations|files|imports|secrets"""
EN = r"""
ever: always|never(?: ever)?|don't (?:you )?ever
idle: an?|the|my|his|her|its|their|our|your|this|that|these|so|too|very|more|less|been|seen|had|done|gone|made|known
|thought|heard|got|found|said|was|were|is|are|am|has|will|would|can|could|mind|again|nice|good|great|happy|glad|fun
|easy|true|better|possible|up|at|as|and|or|but|to|i|he|she|it|we|they|you|there|ready|welcome|sure|right|wrong|(?!need
|embed|feed)[\w-]+ed|(?!bring|ping)\w+ing|(?!\w+ss\b|focus|bias)\w+s
verb: answer|reply|respond|write|speak|talk|use|avoid|stop|keep|make|be|do|ask|tell|give|show|explain|include|add|put
|run|check|test|format|stick|call|address|refer|treat|remember|assume|act|behave|prefer|try|start|begin|end|finish|sign
|quote|cite|mention|list|provide|return|output|print|wrap|limit|round|convert|translate|summari[sz]e|read|verify
|confirm|double-check|validate|review|commit|push|create|name|prefix|document|log|comment|send|notify|remind|wait|get
|let|leave|skip|ignore|omit|drop|preserve|respect|comply|default|focus|think|consider|suggest|propose|offer|save|store
|note|state|say|spell|indent|mark|set|pick|choose|stay|warn|follow|report|recommend|refuse
tongue: english|german|french|spanish|italian|portuguese|russian|chinese|mandarin|japanese|korean|dutch|arabic
rules: always in <tongue>|under no circumstances|(?!this |that |it |which |if |when )[a-z ]{1,40} (?:must|should|shall
|have to|need to|are to|ought to) (?:always|never)(?! (?:happen|occur|fail|be (?:null|empty|none|called)))|you(?:'re
| are) (?:never|not) (?:allowed )?to|you (?:may|must) (?:never|not)\b|you mustn't|i (?:always|never
|only) want (?!to (?:be|go|do|know)\b)\w|i(?:'ve)? (?:told|asked) you (?:to (?:always|never)|not to)|(?:you (?:can|may
|should) |just )?call me (?!back|when|at|later|tomorrow|if|on|again|asap|crazy|maybe|in|tonight|now|once|after|before
|today|an?\b|old)\w|(?:address|refer to) me (?:as|by|with)|my (?:first |full )?name(?:'s| is) (?!not)
|my (?:preferred )?(?:pronouns|nickname|name)(?: are| is|:)|i(?:'d| would)? (?:like|prefer) to be (?:called|addressed)
|(?:make|be) sure (?:to |that |you |that you )?(?:always|never)|ensure (?:that )?(?:you )?(?:always|never)|i(?:'d like
| want| need) you to (?:always|never)|remember(?::| to always| to never| not to| that (?!time|day|one|bug|we (?:talked
|discussed))|,? (?:i|i'm|i've|my|we|our) (?!talked|said|told))|(?:keep|bear) in mind|(?:don't|never) forget(?:,
| that)? (?:i|i'm|my|we|our|to always)\b|only (?:in )?<tongue>\b|<tongue> only\b|(?:my|our|the|house|ground|new|one
|another|general|golden|simple|standing|basic)(?: \w+)? (?:rules?|policy|convention|preference|instructions?)(?: is
| are|:| for)|rules?:|in (?:this|our) (?:project|repo|repository|codebase|team|company),? we \w|we (?:always|never|only
|don't) (?:use|write|deploy|commit|push|merge|call)\b
wishes: (?:answer|reply|respond|speak|talk|communicate|chat|write (?:to|back|only|everything
|all))(?: \w+){0,2} in (?:\w+ )?<tongue>|write in <tongue>|keep (?:it|things|everything|this
|(?:your |the |all |my |every )?(?:\w+ )?(?:<text>|answer|reply|response|language|style|tone
|format))\b.{0,40}\b(?:short|brief|concise|simple|terse|minimal|point|under|below|to|in|formal|informal|casual|friendly
|polite|professional|small|clean|at)\b|be (?:more |very |as |less )?(?:brief|concise|terse|polite|formal|informal
|honest|direct|friendly|specific|precise|critical|succinct|professional|kind|casual|strict|thorough|detailed|consistent
|short)\b|(?:only |just )?use (?!only the|\d+ (?!space|tab|decimal|digit|char|word|line|sentence|bullet)|the |this\x20
|that |these |those |it\b|my |an? |our |your |of |whatever|either
|both|case)\w|use (?:an?|the|my|our) (?:\w+ )?(?:metric|british|american|24|24-hour|formal|informal|imperial|friendly
|polite|imperative|passive|active|oxford|iso|simple|plain|tone|units?|format|system|names?|style)\b|prefer \w|(?:make a
|make it a) habit|no need to \w+ (?!it|that|this)|refer to .{1,40} as |i go by \w+\b(?! bus| train| car)|i(?:'d
| would)? (?:\w+ly |always |much )?(?:prefer (?!not to|to (?!be|have|get|see)|the (?:\w+ )?(?:one|draft|option|version
|first|second|last|latter|other)\b)|rather (?:you|have|not|get|see))|i (?:like|love|hate|dislike|don't like|can't stand
|don't need) (?:it when|when you|your|(?:my |the )?<text>|short|concise|brief|long|emojis?|bullet|being called)|i(?:'d
| would)? (?:really )?(?:want|need|expect|like|require
|wish)(?: for)? you (?:to |not to )(?:not |only |also |just )?(?:be|act|speak|talk|answer|reply|respond|use|call
|address|keep|treat|ask|avoid|prefer|stick|follow|remember|cite|assume|explain|think|behave|stop|refer|confirm|include
|end|start|sign|limit|mention|write (?:in|short|all)|check with|tell me)\b|i don't want (?:you to|any|to (?:see|hear
|get|read|receive))|i (?:only )?(?:want|need|expect) (?:all|every|only|your|short|concise|brief|no|<text>)\b
|don't (?!worry|know|think|bother|mind|get me wrong|have|see|understand|believe|feel|care|need|want|panic|you\b|wait
|hesitate|be (?:sorry|afraid|silly|shy)|forget|remember|let me|like|seem|look|work|exist|we\b|i\b|they\b|stop\b|give up
|move\b)[a-z]+(?! (?:it|that|this|them|him|her|there)\b)(?: \w|[.!,;]?$)|stop (?!smok|drinking|eating|crying|laughing
|worrying|bleeding|the|this|that|it|here|now|at|by|when
|there|for|working|running|being|trying|training)\w+ing\b|avoid (?!this|that|it\b|the )\w|refrain from
|no (?:more )?(?:\w+ )?(?:emojis?|comments?|markdown|bullets?|bullet points|jargon|small talk|preambles?|apologies
|disclaimers|tables|explanations?|semicolons|mocks?|jokes|caveats|code|html|latex|greetings?|intros?|introductions?
|fluff|pleasantries)\b|skip (?:the |all |any )?(?:intros?|preamble|pleasantries|small talk|explanations?|disclaimers?
|boilerplate)|(?:make sure|be sure|ensure)(?: that)? (?:to (?!run|fix|push|merge|restart|call|book|update|check it)
|you (?!have|run|fix|push|are|can)|your|every|each|no |any|all (?!tests|the tests)|(?:the )?<text> (?:are|is|have
|follow))|(?:you|your [\w ]{2,30}|all (?!you |we |i |that )[\w ]{2,40}|every [\w ]{2,40}|each [\w ]{2,40}
|any [\w ]{2,40}) (?:must
|needs?(?: to)?+|has to|have to|shall|are to|should(?: be| not| only| include| use| answer| respond| write| ask| start
| end)) (?!(?:pass|work|know|see|find|(?:be )?(?:done|ready|fixed|there|working|green|able|kidding|joking|tired|wrong
|right|sent)|have (?:been|seen)|admit|look|come|go|help|touch|press|click|fill|buy|pay|bring|visit|register|enter
|select|sign (?!off|each|every|all|your))\b)\w|<text> (?:must|should|need to|have to|shall|are to
|go in)\b(?! (?:pass|work|now|have been|appear|be (?:done|ready|fixed|there|working|green|running)))|you (?:may|can
|are) only\b|you (?:shouldn't|should not|can't|cannot) (?!be\b|see|reach|believe)\w|only <verb>\b|(?:answer|reply
|respond|return|output|speak|talk|write|explain)(?: to me| me)? (?:only |just |exclusively )?(?:with|in|using|as
|like) (?:only |just |at most |no more than |under |one |a single |short |full |json|markdown|bullet|plain|yaml|xml
|html|metric|simple|lower|points|\d|an? |prose)|(?:limit|restrict|shorten|format|structure|number|sign|end|start|begin
|finish|close|round) (?:your|all|each|every|<text>) \w|(?:max|at most|no more than) (?:\d+|one|two|three) \w+|(?:ask
|check with|confirm with|consult|warn)(?: me| us)?(?: \w+){0,3} (?:before|first|if you|when(?:ever)? you|if any)\b
|(?:act|behave|pretend|speak|talk|write|think) (?:like|as if|as|that) (?:an? |my |you|i )|you(?:'re
| are) (?:now )?(?:an? |my )(?!genius|star|legend|lifesaver|bit |lot|life|hero|real|true|good|great|big)\w|treat (?:me
|all|every|any|everything|my|warnings) |assume (?:that )?(?:i|i'm|my|all|the (?:user|reader)|every|no|metric|python
|utc)\b|(?:stick|adhere|conform) to (?!this|that)\w|follow (?:pep|the (?:style|coding|naming)|our|my|conventional)
|let's (?:always|never|agree|stick|keep (?!going|looking|trying)|not|use|avoid|stay|only|speak|talk)\b|it(?:'s
| is) (?:important|essential|crucial)(?: to me)? that (?:you|all|every|your|no)\b|cite (?:your |all )?sources
|write (?:everything|all|code in|tests (?:first|before))
order: don't \w|no \w|only |you(?:'ll| (?:must|should|need|will|have|are to|can only|may|shall|only|always|never|answer
|reply|speak|use|call|write))\b|(?:can|could) you|i (?:want|need|expect|prefer|only|don't want|never|would)\b
|i'd (?:like|prefer|rather)|let's|we (?:use|don't|never|always|only|write|speak|need|call|stick|say)\b
|all |every |your |in <tongue>|short |just\x20
lasting: (?:starting )?from (?:now|here|today|this (?:point|moment|day)|tomorrow) (?:on(?:wards?)?|forward|out)\b
|starting (?:now|today)\b|(?:going|moving) forward|in (?:the )?future\b(?! (?:version|release))|henceforth
|for the (?:rest|remainder) of|throughout (?:this|the|our)|until (?:i|we) (?:say|tell|ask|decide|change)
|until further notice|unless (?:i|we|explicitly|otherwise|asked|told)\b|by default|as a (?:general )?rule|at all times
|(?:in|with|to|at the (?:end|start|beginning|top|bottom) of|after|before|for|on|per) (?:(?:each|every)(?: single
| of your| new| major)?|all(?: of)? (?:your|new|future|our)|any(?<=fter any)|any(?<=fore any)) (?!file in|of these
|line in|test in)\w+|(?:every|each|any) ?time\b|whenever|without (?:asking|my|checking|explicit|permission|approval
|telling|confirm\w+)|(?:your|all (?:your|my|future|new)|future|my) <text>|(?:in|for) (?:this|our) (?:conversation|chat
|session)|(?:when|if) (?:you|i)(?:'re|'m| are| am)? (?:write|answer|reply|respond|generate|refactor|mention|explain
|show|give|quote|cite|say|ask|use|edit|change|create|add|name|commit|talk|refer|don't know|not sure|unsure|in doubt
|uncertain|need to|see a|suggest|propose|translate|review|send|paste|can't|cannot)\b|when \w+ing\b
|^for (?:\w+ ){0,2}\w+s,|(?:when|if) (?:an?|any|in doubt|unsure|something|anything)\b|for all <text>|everywhere
|before (?:deleting|committing|pushing|deploying|making|changing|running|installing|sending|buying|booking)\b
moment: now(?! on)|right now|today|tonight|yet|this time|for now|at the moment|just this once|once more|this once
|the following|below|attached|tomorrow|yesterday|already|that (?!you|all|every|each|i|no|your|the|are|is|my)\w+|these
|those|this (?!conversation|chat|session|project|repo|repository|codebase|thread|style|format|way|rule|convention
|kind)\w+|this|instead
"""
DE = r"""
ever: immer|stets|nie|niemals|ausschließlich|nur noch
idle: noch|wieder|mehr(?! als)|dies\w*|das|der|die|gut|schön|so|ich|er|es|wenn|für|weil|gesehen|gehört
verb: (?:antwort|schreib|verwend|benutz|nutz|nenn|frag|zeig|erklär|füg|halt|beend|beginn|prüf|test|führ|geh|mach|sag
|setz|stell|acht|lass|zitier|formatier|rund|vermeid|erwähn|bestätig|wart|speicher|committ|push|lösch|änder|unterschreib
|erinner|fass|entschuldig|erfind|wiederhol|kommentier)(?:e|en sie)?|nimm|gib|sprich|lies|sei|bleib
tongue: (?:deutsch|englisch|französisch|spanisch|italienisch|russisch|chinesisch|japanisch)\w*
rules: (?:alle|bei|im?|für|jede\w*) [^,]*\b(?:immer|stets|nie|niemals|nur)\b[^,]*en[.! ]*$|(?:du|sie|wir) (?:musst
|sollst|solltest|darfst|müssen|sollen|dürfen|sollten) (?:\w+ ){0,3}(?:immer|stets|nie|niemals|nicht|keine?|nur)\b
|nenn(?:e|en sie)? (?:mich|uns) (?!ein)|ich heiße|mein name ist|(?:duz|siez)(?:e|en sie)? mich|sprich mich
|sprechen sie mich|sag(?:en sie)? (?:bitte )?(?:du|sie) zu|merke?n? (?:dir|sie sich)
|denke?n?(?: sie)? (?:bitte |immer )?daran|vergiss (?:bitte )?(?:nicht|nie)|behalte? (?:bitte )?im
|(?:bitte )?nur (?:noch )?(?:auf )?<tongue>|unter keinen umständen
wishes: (?:antworte?n?|schreibe?n?|sprich|sprechen|redet?n?)(?: \w+){0,3} (?:auf|in) (?:\w+em )?<tongue>|(?:ich
|wir) (?:möchte|will|wollen|hätte|wünsche|erwarte)n?(?: gerne?| mir| bitte| nicht)*,? dass (?:du|sie|alle|jede\w*|deine
|keine)|ich (?:möchte|will|mag|brauche) (?:keine|nur|immer|kurze|lieber)|ich (?:bevorzuge|ziehe)|mir (?:ist
|wäre) (?:es )?(?:lieber|wichtig)|(?:fasse?|halte?)n?(?: sie)? (?:dich|sich|es|deine|die|ihre|alles)|(?:stelle?|achte
|sorge?)n?(?: sie)? (?:bitte )?(?:sicher|darauf|dafür|auf)|(?:verwende|benutze?|nutze?
|nimm)n?(?: sie)? (?:bitte )?(?!(?:die|den|das|der|diese\w*|dazu|dafür|dies|ihn|es|sie|mal|meine\w*|bitte)\b)\w
|keine?n? (?!(?:sorge|ahnung|ursache|panik|angst|eile|frage|zeit|lust|chance|fehler|änderung|problem|idee|antwort
|wunder|stress)\w*\b)\w+|(?:vermeide|verzichte)n?\b|<verb>(?: (?:mir|mich|dich|bitte|dir|uns|hier))* (?:nichts|keine\w*
|kein|nicht)\b(?! (?:sorge|angst|stress))|frage?n?(?: sie)? (?:mich |uns )?(?:bitte )?(?:erst|vorher|nach|bevor|zuerst)
|höre?n?(?: sie)? (?:bitte )?auf|sei(?:en sie)? (?:bitte )?(?:kurz|knapp|freundlich|höflich|förmlich|direkt|ehrlich
|präzise|kritisch|genau)|<verb>(?: mir| bitte)* (?:nur|kurz|knapp|mit|jede\w*|deine|alle|alles|als|so)\b|(?:alle
|jede[rs]?|deine|antworten|kommentare|commits?) [^,]{0,40}(?:müssen|muss|sollen|soll|dürfen)\b|du (?:musst|sollst
|darfst)\b
order: bitte \w|keine?\b|nur\b|du (?:sollst|musst|darfst)|ich (?:möchte|will|hätte|brauche)|alle\b
lasting: ab (?:jetzt|sofort|heute|nun)|von (?:jetzt|nun|heute) an|in zukunft|künftig|zukünftig|fortan|bis auf weiteres
|jedes ?mal|immer,? wenn|standardmäßig|(?:in|bei|nach|vor|mit|für|zu|am ende) (?:jede[mnrs]?|allen?|deinen|ihren)\b
|es sei denn|ohne (?:rückfrage|meine|zu fragen|mich)|(?:deine|ihre|alle) (?:antworten|nachrichten|commits|kommentare)
|wenn (?:ich|du) (?:\w+ )*(?:frag|schreib|sag|bitte|antwort|unsicher|erwähn|nicht weißt)\w*|bevor du|im zweifel
moment: jetzt|gerade|heute|diesmal|noch nicht|erst ?mal|vorerst|diese[nmrs]? (?!unterhaltung|chat|projekt|gespräch|art
|stil)\w+|dies|morgen|folgende\w*|gleich|(?:die|den|das) (?:datei|test|funktion|bug)
"""
FR = r"""
ever: toujours|jamais
idle: pas|en retard|l[ea] même|vu|eu|été|aussi|plus|de la|ça
verb: (?:répond|parl|écri|utilis|mett|ajout|demand|expliqu|donn|gard|évit|termin|commenc|cit|vérifi|lanc|test|montr
|sign|limit|employ|indiqu|inclu|confirm|tradui|appell|propos|résum|tutoi|vouvoi|précis|rappell|privilégi|préfèr|rest
|arrêt|consult|structur|format)(?:e|ez|s|vez|sez)?|fai(?:s|tes)|so(?:is|yez)|mets|dis|préviens
tongue: français|anglais|allemand|espagnol|italien|portugais|russe|chinois|japonais
rules: (?:ne |n')[^,;]{0,40} jamais|(?:tu|vous) (?:ne )?(?:dois|devez|devrais|devriez) (?:toujours|jamais|pas|ne)
|il (?:faut toujours|ne faut jamais)|(?:appell?ez?|nommez?)-(?:moi|nous) (?!dès|quand|demain|plus tard|ce soir|à|si
|vite)|je m'appelle|mon (?:nom|prénom) est|(?:tut|vouv)o[iy]ez?-(?:moi|nous)|souv(?:iens|enez)-|rappell?ez?-(?:toi
|vous)|n'oubliez? (?:pas|jamais) (?:que|de toujours)|ret(?:iens|enez) |gardez? (?:à l'esprit|en tête)|(?:uniquement
|seulement) en <tongue>|en <tongue> (?:uniquement|seulement|s'il)
wishes: (?:répond[sez]*|parlez?|écri[svez]+)(?:-moi|-nous)?(?: \w+){0,2} en (?:\w+ )?<tongue>|(?:je (?:veux|voudrais
|souhaite|tiens à ce)|j'aimerais) (?:que (?:tu|vous|toutes?|tous|tes|vos|les|chaque)|des réponses)|je préf[éè]\w+
|je ne veux (?:pas|plus|jamais) (?:que|de|d'|voir)|(?:merci de|veuillez) (?:toujours|ne |bien|répondre|utiliser|rester
|garder|éviter|m'appeler)|so(?:is|yez) (?:bref|brève|concis|poli|précis|direct|clair|formel|honnête|gentil|critique)
|fai(?:s|tes) (?:court|simple|bref)|restez? \w|gardez? (?:tes|vos|les|un)|(?:utilise|emploie|privilégie|préfère
|utilisez|employez|privilégiez) (?!(?:l[ea]s?|cet?|cette|ces|mon|ma|ça)\b)\w|(?:évitez?|arrêtez?|cessez?)\b|(?:pas|plus
|jamais|sans) (?:d'|de )(?:[eé]mojis?|commentaires?|jargon|markdown|listes?|tableaux|abréviations|anglicismes)\b
|(?:ne |n')(?:me |m'|nous |te |les |le |y )?(?!(?:importe|inqui\w+|hésit\w+|marche|fonctionne|sais|peux|vois|comprends
|est|vous|trouve)\b)\w+(?:e|s|ez)(?:-\w+)? (?:pas|plus|rien|aucun\w*|que)\b|assure(?:z-vous|-toi)|demandez?(?:-moi
|-nous)? (?:toujours |d'abord|avant|ma |mon |confirmation|si)|(?:toutes?|tous|chaque|tes|vos) [^,]{0,40}(?:doi(?:ven)?t
|devr\w+) |répond(?:s|ez)(?:-moi)? (?:uniquement|seulement|brièvement|simplement|avec|en)\b
order: ne \w|n'\w|merci de|veuillez|pas de|je (?:veux|voudrais|préfère|souhaite)|j'aimerais|tu (?:dois|devras|réponds
|peux)|vous (?:devez|devrez)|uniquement|toutes?|il faut
lasting: désormais|dorénavant|à partir (?:de maintenant|d'aujourd'hui|de ce jour)|à l'avenir|jusqu'à nouvel ordre
|(?:à )?chaque fois|par défaut|(?:dans|à|après|avant|avec|pour|de) (?:chaque|toutes? (?:tes|vos|les|mes)|tous (?:tes
|vos|les|mes))|à moins que|(?:tes|vos|toutes les) (?:réponses|messages|commits|commentaires)|sans (?:me|mon|ma|demander
|exception)|quand (?:je|tu) (?:te |me )?(?:demande|écris|réponds|parle|cites)\w*|si tu (?:n'es pas|ne sais|as un doute)
moment: maintenant|aujourd'hui|cette fois|pour l'instant|pour le moment|tout de suite|encore|(?:ce|cet|cette
|ces) (?!conversation|projet|session|style|format|façon)\w+|demain|ci-dessous|suivante?s?|ça
"""
ROMANCE = r"""
ever: siempre|nunca|jam[áa]i?s|sempre|mai
idle: me \w+o|he|has?|hemos|han|es|está?|é|fue|foi|son|vi|tem|ho|hai|igual|se|me gust\w*|fun[cz]ion\w*|fall?h?a\w*|hay
|m[áa]i?s|più|mejor|meglio|puedo|sé|sei|visto|stato|avuto|fatto|così|che|que|ouvi|consigo|l[oa] stess[oa]
verb: (?:resp[óo]nd|rispond|contest|us|utili[zc]|utilizz|escr[íi]b|escrev|scriv|h[áa]bl|fal|parl|añad|agreg|adicion
|preg[úu]nt|pergunt|expli[cq]u?|spieg|mantien|manten[gh]|evit|termin|empiez|comec|inizi|cit|verifi[cq]u?|comprueb
|controll|ejecut|esegu|execut|prueb|prov|test|mu[ée]str|mostr|firm|assin|limit|inclu[yd]?|confirm|tradu[cz]|redonde
|arrotond|arredond|ll[áa]m|cham|chiam|propon|av[íi]s|avvis|esper|aspett|resum|riassum|revis|cons[úu]lt|indi[cq]u?
|recu[ée]rd|ricord|lembr|corri[gj]|corregg|env[ií]|coloqu|tr[áa]t|format|lasc|chied)[aei](?:me|mi|nos|-me)?|pon|haz|da
|sé|di|dame|dime|dammi|dimmi|fai|faz|faça|dê|metti|aggiungi|dai|sii|seja|tieni|mantén|me \w+e
tongue: español|espanhol|castellano|spagnolo|ingl[eéê]se?|alem[áã]n?o?|tedesco|franc[eéê]se?|italiano|portugu[eéê]s
|portoghese|russ?o|chin[oéê]s?|cinese|japon[eéê]s|giapponese
rules: (?:n[oã]o?n? )?(?:você |tu )?(?:debes?|tienes? que|hay que|puedes|devi|deve|deves|bisogna|tem que
|precisa) (?:\w+ )?<ever>|non (?!ho|ha|hai|è|funziona)[^,;]{0,30}\bmai\b|(?:ll[áa]m[ae]me|puedes llamarme|chiamami
|puoi chiamarmi|me cham[ea]|cham[ea]-me|pode me chamar)(?: de)? (?!cuando|mañana|luego|a las|más|por|quando|domani|più
|dopo|amanhã|depois|se\b|si\b)|me (?:ll|ch)amo|chamo-me|mi chiamo|mi nombre es|il mio nome è|(?:o )?meu nome é
|tut[ée]ame|(?:tr[áa]t[ae]|h[áa]bl[ae])(?:me|-me) (?:de|por)|me trate|dammi del|diamoci del|(?:recu[ée]rd[ae]
|ricord[aio](?:ti|te)?|lembre(?:-se)?|lembra-te|acu[ée]rdate)(?: de)? ?(?:que|che|di|sempre|siempre|:)|(?:ten|tenga
|tieni|tenga|tenha|tem) (?:siempre |sempre )?(?:en cuenta|presente|a mente|conto|em mente|em conta)|n(?:o|ão
|on) (?:te |se )?(?:olvides?|esqueças?|dimenticare) (?:de )?(?:que|che)|bajo ning[úu]n|per nessun|em (?:nenhum
|hipótese)|(?:s[óo]lo|solamente|únicamente|soltanto|esclusivamente|só|somente|apenas) (?:[ei][nm]? )?<tongue>
wishes: (?:resp[óo]nd|rispond|cont[eé]st|escr|scriv|h[aá]bl|fal|parl
|comuni)\w+(?:-\w+)?(?: \w+){0,2} [ei][nm] (?:\w+ )?<tongue>|(?:quiero|me gustaría|necesito|espero|te pido|voglio
|vorrei|mi piacerebbe|quero|gostaria|preciso) (?:(?:que|che) (?!(?:me ayudes|arregles|mires|revises|corrijas|hagas un
|mi aiuti|sistemi|guardi|me ajude|arrume|veja|corrija)\b)|(?:respuestas|risposte|respostas|siempre|sempre|s[oó]lo?)\b)
|prefier[eo]|preferi(?:sco|rei|ría)|prefiro|n(?:o|ão|on) (?:quiero|quero|voglio) (?:que|che|ver|vedere|más|mais|più|n
|emoji|coment|comment|tabl|respuestas l)|s(?:é|ea|ii|ia|eja) (?:\w+ )?(?:breve|concis|educa[dt]|amable|dir|form|preci
|cl|chiar|honest|onest|cr[íi]tic|gentil|sint|sucint|objetiv)\w*|(?:us[ai]|use(?! \d)|utili[zc][ae]|utilizz[ai]) (?!
(?:el|l[aeo]s?
|est[aeo]s?|es[aeo]|il|i|gli|quest\w+|quell\w+|mi|mio|uno?a?|the|this|th\w+|my|your|our|an?|os?|as|of|it|ess[ae]|uma?
|meu)\b)\w|(?:us[ae]|utiliz[ae]|utilizza) (?:el|la|las|il|le|o|as|una?|um) (?:sistema|formato|unid\w+|unità|to[nm]o?
|esti\w+|stile|tu|lei)\b|n(?:o|ão) (?:me |le |lo |o |a )?(?:us|utili[cz]|escrib|escrev|respond|hag|faç|pong|ponh|borr
|apagu|elimin|delet|remov|toqu|cambi|mud|alter|modifiqu|añad|adicion|agregu|inclu|incluy|ejecut|execut|instal|invent
|rep[ie]t|tradu[zc]c?|mencion|dig|habl|fal|env[ií]|mand|omit|expliqu|asum|assum|trat|m[ou]e?str|dej|deix|cre|cri|ger
|disculp|resum|mex|tute)[ea]s?\b|non (?!(?:preoccupar\w*|esitare|riesco|posso|fare caso)\b)\w+(?:are|ere|ire
|[aei]r(?:mi|ti)|rl[oaie]|rre)\b|(?:evit[aei]|dej[ae] de|nada de|par[ea] de|smetti di|niente)\b(?! \w+ema)|(?:sin|sem
|senza) (?:emojis?|coment\w+|commenti|tabl\w+|list\w+)|(?:aseg[úu]r|assicur|certifi
|assegur)\w+(?:-\w+)? (?:de |di |sempre |che )|garanta|(?:no |não |non )?(?:debes|tienes que|devi|deves?|você deve)\b
|(?:preg[úu]nt[ae]me|chiedimi|pergunt[ea]-me|me pergunte|av[íi]sa?me|avvisami|me avise|cons[úu]lt[ae]me
|me consulte) (?:siempre|antes|primero|si|sempre|prima|se|conferma|primeiro)\b|(?:mantén|mantieni|mantenha|limit[ae]
|termin[ae]|empieza|inizia|comece|firma|assine|cit[ae]|tieni) (?:tus|l[aeo]s?|i|il|os?|as|u[nm]|suas|siempre|sempre
|cada|ogni|t[ou]d?tt?[aeio]s?|fuentes|fontes)\b|r[ei]sp(?:ues|os)t[ae]s? (?:cort|brev|concis)\w+|(?:responde|contesta
|escribe|responda|escreva|rispondi)(?:me|mi)? (?:s[óo]lo?|únicamente|somente|apenas|soltanto|con|com|de forma
|brevemente)\b|(?:tod[ao]s|cada|tus|suas|tutt[ei]|ogni|le tue) [^,]{0,40}(?:deb|tienen? que|dev|têm? que)
order: n(?:o|ão|on) \w|nada de|niente|qui?ero|prefi\w+|preferisco|necesito|voglio|vorrei|debes|devi|deves?|tienes que
|s[óo](?:lo)?|apenas|t[ou][dt]t?[ao]s?|tutt[ei]|por favor|per favore
lasting: a partir de (?:ahora|hoy|este momento|agora|hoje)|de(?:sde)? (?:ahora|aquí|hoy|agora|hoje)(?: mismo
| en adelante| em diante)?|en adelante|[ei][nm] (?:el )?futuro|no futuro|en lo sucesivo|d'ora in (?:poi|avanti)
|da (?:ora|adesso|oggi|questo momento) in (?:poi|avanti)|in avanti|daqui (?:em|para a?|pra) ?(?:diante|frente)
|doravante|hasta nuevo|fino a nuovo|até (?:segunda|novo)|cada vez|siempre que|sempre que|toda vez|todas as vezes
|ogni volta|tutte le volte|por defecto|por padrão|di default|(?:e[nm]|in|con|com|a|tras|para|per|al final de|(?:después
|depois|antes|prima) de|dopo|prima di) (?:cada|ogni|qualsiasi|cualquier|qualquer|t[ou][dt]t?[aeio]s?)|a menos que
|a meno che|salvo que|a não ser que|(?:tus|todas las|le tue|tutte le|suas|todas as) (?:r[ei]sp\w+|mens\w+|spieg\w+)
|(?:sin|sem|senza) (?:me |mi |minha|il mio|pregunt|pergunt|pedir|chieder|consult|exce|ecce)\w*|(?:en|in|em) caso d[ei]
|(?:cuando|quando) (?:te |ti |me |mi |eu )*(?:pregunt|pid|ped|pergunt|escrib|escrev|scriv|respond|rispond|dig|diss|dic
|chied|no s|não s|non s)\w*|s[ei] (?:no estás|tienes dudas|no sabes|dudas|não souber|tiver dúvida|non sei|non sai
|hai dubbi)\w*
moment: ahora|hoy|esta vez|por ahora|todavía|aún|est[ea]s? (?!conversa|sesi|sess|pro[yj]e|esti|format|manera|forma)\w+
|esto|eso|es[ea] \w+|mañana|siguientes?|lo|(?<!d')ora|adesso|oggi|stavolta|per ora|ancora|quest[oaei] (?!conversa|sess
|proge|stil|format|modo|chat|momento)\w+|questo|quel\w* \w+|domani|subito|agora|hoje|d?esta vez|ainda|ess[ea]s? \w+
|isso|isto|amanhã|seguinte|abaixo|já
"""
RU = r"""
ever: всегда|никогда(?: не)?|постоянно
idle: так|такой|было|был|буду|рад\w*|одно|очень|бывает|\w+(?:ет|ит|ют|ят|ал|ла|ли|аю|ел)
verb: (?!очень|есть|здесь|теперь|весь|день|опять|или|если|три)\w+(?:[аяуюе]й|ой|ши|ори|оси|ди|ерь|[аоя]вь|чни|жи|удь|ни
|ги|ови|иси|ли)(?:те|ся|тесь)?
tongue: (?:русск|английск|немецк|французск|испанск|китайск|японск)\w+
rules: (?:ты|вы) (?:должен|должна|должны|обязан\w*) (?:всегда|никогда)|(?:зови|называй)(?:те)? меня|меня зовут
|мо[её] имя|обращай(?:ся|тесь) ко мне|(?:можешь|можете) (?:называть|звать) меня|(?:запомни|помни|имей|учти
|учитывай)(?:те)?\b|не забывай(?:те)?|ни в коем случае|ни при каких|только (?:на |по-)<tongue>
|<verb>(?: \w+){0,2} только\b|давай(?:те)? (?:всегда|договоримся|на ты|на вы|перейд[её]м)
wishes: (?:отвечай|ответь|пиши|говори|общай)(?:те|ся|тесь)?(?: \w+){0,2} (?:на |по-?)<tongue>|(?:я )?(?:хочу
|хотел\w* бы|прошу|требую),? (?:чтобы (?:ты|вы|все|ответы|код)|не|только)|мне (?:нужно|надо|больше нравится
|нравится),? (?:чтобы (?:ты|вы|все)|когда)|(?:я )?предпочитаю|(?:я )?не (?:хочу|люблю),? (?:чтобы|видеть|когда)
|будь(?:те)? (?:кратк|вежлив|конкретн|прям|честн|лаконичн|формальн|критичн|точн)\w*|(?:используй
|применяй)(?:те)? (?!(?:эт\w+|тот|ту|мой|мою)\b)\w|(?:больше )?не (?!волнуй|беспокой|пережива|бойся|жди|спеши
|забудь)<verb>\b|(?:избегай|перестань|прекрати)(?:те)?|хватит \w+ть|без (?:эмодзи|смайлик|комментари|воды|лишн|жаргона
|извинений|списков|таблиц)\w*|никаких|следи(?:те)?|(?:ты|вы) (?:должен|должна|должны|обязан\w*)|нельзя|(?:спрашивай
|спроси|уточняй|предупреждай)(?:те)?.{0,20}(?:прежде|перед|сначала|если|меня)|кратко\b|покороче|(?:отвечай|пиши
|говори)(?:те)?(?: \w+)? (?:кратко|коротко|только|просто|подробно|в |без|одним|простым|по делу)|(?:все|кажд\w+|твои
|ваши|ответы) [^,]{0,40}должн\w+
order: не \w|никаких|только|пожалуйста|я хочу|хочу|ты (?:должен|должна|будешь)|все |без\x20
lasting: отныне|с (?:этого|сегодняшнего|данного) (?:момента|дня)|впредь|в будущем|кажд(?:ый|ое) раз|по умолчанию|(?:в
|во|после|перед|к|при|с|для|на) (?:кажд\w+ \w+|всех|люб(?:ой|ым|ых|ом)|всем)\b|если (?:не |только )?(?:уверен\w*|я не
|сомнева\w*|что-то|знаешь)|когда (?:я|ты) (?:прошу|спрашиваю|пишешь|отвечаешь|пишу|говорю)|пока (?:я )?не (?:скаж
|попрош)\w*|без (?:моего|моей|спроса|разрешения|исключений)|(?:твои|ваши|все) ответы|прежде чем
moment: сейчас|пока(?! не)|сегодня|в этот раз|на этот раз|ещ[её] раз|эт(?:от|у|и|ого|ой|их|о)(?! (?:разговор|чат|проект
|момент|стил|дня|минут)\w*)|завтра|ниже|следующ\w+|тот|ту|его|её
"""
ZH = r"""
tongue: (?:[简繁]体)?(?:中文|英文|英语|日语|日文|德语|德文|法语|西班牙语|俄语|汉语|普通话|粤语|韩语)
start: (?:^|[，,；;：:、]\s*)(?:请|麻烦|另外|还有|对了|好的?|那|不过|但是?|所以|也|谢谢|你|您|以后|今后|从现在(?:开始|起)|在?回答(?:时|的时候)?|[^，。他她我它]{0,8}(?:时
|的时候|之前|前|后|里|中)){0,3}
rules: 从(?:现在|今天|今|这里)(?:开始|起|往?后|以后)|今后|往后|以后(?!再|会|可能|我们)|始终|务必|永远(?:不要|别|用|使用|记住)|绝(?:对)?不(?:要|能|可)|千万(?:不要|别)|(?:不要
|别)再|[^，。他她我它]{0,8}一律|(?:总是|一直|永远|每次都|每次)(?:用|使用|要|先|把|以|保持|回答|写|给|在|不要|加|附|叫|说)|每次[^，。]{1,20}(?:都|请|要|先|时)|每当|记住|记得|切记
|牢记|(?:叫|称呼|喊)我(?!起床|一下|的时候)|我的名字(?:是|叫)|我叫(?!了|你|他|她)|无论(?:如何|什么时候)|任何(?:情况|时候)|除非我|默认|(?:代码|回答|答案|回复|变量名|注释|文件名
|所有[^，。]{1,12})?(?:必须|一定要|不得|不准|不许|禁止|严禁)|所有(?:的)?(?:回答|回复|代码|注释|答案|日期|价格)[^，。]{0,12}(?:要|请|用|都)
wishes: 只?(?:用|以|使用|说)<tongue>|(?:回答|回复|说话)(?:请|时|要)?(?:用|简|尽量|保持|不要|控制)|我(?:希望|想让|想要|要求?)(?:你|您)(?!帮我)|我(?:更喜欢|喜欢|偏好
|倾向|不喜欢|讨厌|不想看)|只(?:用|使用|输出|返回|回答|给|能|说|写)|(?:确保|保证)(?:所有|每|你|回答|代码)|(?:尽量|保持|尽可能)[^，。]|(?:简短|简洁|言简意赅|礼貌)|(?:不要|别|请勿|勿
|避免|不用|停止使用|少用)(?!担心|紧|着急|急|走|忘|误会|生气|客气|管|怕|动|停)[^，。]|优先(?:使用|考虑|用)|先?(?:问我|征求我|跟我确认|经过我)|(?:未经|没有|没)(?:经过)?(?:我|允许
|许可)的?(?:同意|允许|许可)?[^，。]*(?:不|别)|如果[^，。]{1,12}(?:就|请)(?:问|告诉|说)|(?:必须|应该|要|不能|不可以|只能|可以叫我)(?!看|试)|假设我|把我当|扮演
|(?:现在)?是(?:一个|一名|一位|我的)(?!天才|好人)|遵循|遵守|[^，。]{0,8}(?:不要|不)?(?:超过|控制在|限制在)\w+(?:字|句|行)
moment: 现在(?!开始|起)|今天(?!开始|起)|这次(?!对话|会话)|这一次|暂时|先别|先不要|这(?:个|段|份|条|行|些|张|篇|里)(?!对话|会话|项目)|那个|刚才|明天|一下
"""  # noqa: E501  (a Han letter counts as two columns)
JA = r"""
tongue: (?:日本語|英語|中国語|ドイツ語|フランス語|韓国語)
start: (?:)
rules: (?:今後|これから|今から|以後|以降|常に|必ず|毎回|絶対|決して|二度と|いつも|原則|一切|極力|できるだけ|なるべく|たびに|ごとに|デフォルトで|場合は|ときは|時は|前に)[^。]*(?:ください|下さい
|くれ|ほしい|欲しい|こと|お願い|ように|なさい|禁止|べき|するな|しない|使わない|使う|て|で)(?:です|します|ね|よ)?[。！!]*$|[^。]*(?:と呼んで|とお呼び|と申します|覚えて(?:おいて|ください|ね)
|忘れないで)|(?:私|僕|俺|わたし|ぼく)の名前は
wishes: [^。]*(?:<tongue>(?:だけ|のみ)?で(?:の)?(?:答え|回答|返|お願い|話|書|説明|応答|対応)|[らかさたまわがばなしけえれめてせべげ]ない(?:で(?:ください|下さい|ほしい|くれ|ね|。
|$)|こと|ように)|(?:簡潔|手短|短く|丁寧|簡単|シンプル|敬語|タメ口|ですます|端的)[^。]*(?:ください|下さい|お願い|て。?$|で。?$|ほしい|話|答え|こと)|[てで](?:ほしい|欲しい)(?:です|。|$)
|(?:を|が|の方が|ほうが)(?:優先|好き|好み|希望)|(?:のみ|だけ)(?:を)?(?:使|で|出力|返)|(?:避け|控え|やめ)て|は(?:不要|禁止|いりません|要りません|なし)|[文字行語]以内[でに]
|として(?:振る舞|話|行動|答え|回答)|で統一|に従って|(?:を)?使って(?:ください|ね|。|$))
moment: 今回|今日|今は|今だけ|とりあえず|この(?!会話|セッション|プロジェクト|スタイル|形式|チャット)|その|さっき|次の|明日|一旦|いったん|昨日|以下
"""  # noqa: E501  (a kana counts as two columns)
