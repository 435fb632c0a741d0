"""The words by which `standing_instructions.py` tells standing instructions from other sentences, a language a line.

In lower case, separated by commas; `…` stands for up to 40 characters, `*` for the end of a word.
"""

PATTERNS = {
    # May stand before an order.
    "fillers": """
        please, pls, ok, okay, also, and, but, so, then, hey, hi, great, thanks, well, yes, just, btw, note, ever,
        bitte, und, aber, übrigens, et, mais, au fait, por favor, y, pero, per favore, e, ma, mas, tá, ah, пожалуйста,
        и, а, но, кстати, 请, 請, 都
    """,
    # Begin a request, also one that is put as a question.
    "asks": """
        can you, could you, would you, will you, you should, you must, you have to, i want you to, i'd like you to
        kannst du, könntest du, würdest du, können sie, könnten sie, du sollst, du musst, dass du, dass sie
        peux-tu, pourrais-tu, pouvez-vous, pourriez-vous, je veux que tu, j'aimerais que tu, tu dois
        puedes, podrías, quiero que, me gustaría que, debes, puoi, potresti, voglio che, vorrei che, devi
        você pode, pode, poderia, quero que você, prefiro que você, você deve
        можешь, можете, не мог бы ты, не могли бы вы, ты должен, чтобы ты, чтобы вы
        我希望你, 能不能, 你可以, 可以
    """,
    # Begin a clause that tells of something.
    "reports": """
        i, i'm, i've, we, he, she, they, it, it's, you, the, this, that, these, there, my, our, his, her, their, a,
        never mind, as always, said, is, nice, fails, if, …that always, …that never, mind, add
        ich, er, sie, es, wir, man, du, der, die, das, ein, eine, mein*, unser*, dies*, sag*, im, am, wie immer, noch
        je, j'ai, il, elle, on, nous, c'est, ce, cette, ça, le, la, les, un, une, mon, n'ai, comme toujours, vu
        yo, él, ella, el, los, las, mi, esto, este, esta, he, ha, habrá, como siempre, falla, se, me llegó
        lui, lei, lo, i, gli, mio, questo, questa, ho, non ho, non sono, come sempre, fallisce, è, ci saranno
        eu, ele, ela, o, os, um, uma, meu, minha, isso, fui, tive, recebi, haverá, como sempre, falha, fecha
        я, он, она, они, мы, это, эта, этот, мой, наш, как всегда, будет, такого, сайт, посылка
        我, 他, 她, 它, 这, 那, 再说, 会
        彼, …ました, …です, …ています, …ます, …ない, サイト
    """,
    # Begin a clause before the order, or stand in it, and make it last.
    "conditions": """
        whenever, every time, each time, when you write, when writing, when reviewing, when in doubt, if in doubt,
        if you are not sure, unless i say otherwise, before each, before every
        jedes mal, immer wenn, chaque fois que, à chaque fois que, cada vez que, siempre que, ogni volta che
        toda vez que, sempre que, каждый раз, 每次, 每当
    """,
    # Make an order last.
    "lasting": """
        always, never, from now on, by default, in future, in the future, going forward, don't ever, as a rule,
        under no circumstances, in general, at all times, for the rest of, throughout, until further notice,
        without asking, without my, no more, must, all … should, every … should, every … needs, each … has, all your,
        all our, your answers, your replies, everything you, anything you, in every, every answer
        immer, nie, niemals, stets, ab jetzt, ab sofort, von jetzt an, künftig, in zukunft, auf keinen fall,
        grundsätzlich, generell, standardmäßig, bis auf weiteres, ohne meine, ohne rückfrage, müssen, jede … braucht
        toujours, jamais, à partir de maintenant, désormais, dorénavant, à l'avenir, par défaut, à chaque fois,
        en aucun cas, sans mon, sans me demander, doivent, chaque … doit, toutes tes
        siempre, nunca, a partir de ahora, de ahora en adelante, en el futuro, por defecto, bajo ningún concepto,
        sin preguntarme, sin mi, deben, cada … debe
        sempre, non … mai, d'ora in poi, da ora in poi, in futuro, di default, in nessun caso, senza chiedermi,
        senza il mio, devono, ogni … deve
        nunca, a partir de agora, de agora em diante, no futuro, por padrão, em hipótese alguma, sem me perguntar,
        sem minha, devem, cada … deve
        всегда, никогда, отныне, впредь, с этого, в будущем, по умолчанию, ни в коем случае, без моего, без спроса,
        должны, каждый … должен
        始终, 始終, 永远, 一律, 从现在, 從現在, 以后, 今后, 务必, 默认, 没有我的同意, 沒有我的同意, 必须, 不得, 之前先
        常に, いつも, 必ず, 今後, これから, 毎回, 絶対に, 許可な, デフォルト
    """,
    # Begin orders that last by their nature, unless one of the moments ties them.
    "forms": """
        call me, my name is, my timezone is, don't use, no emojis, keep it short, keep your, keep the tone, answer in,
        reply in, write in, respond only, only use, only suggest, remember that, remember i'm, keep in mind,
        bear in mind, don't forget that, you must not, you may not, you're not allowed, house rule, the rule is,
        commits should always, avoid, be concise, stick to, treat me, address me, speak to me, refer to me,
        ask before, ask me before, use british, i don't want any, don't apologi*
        nenn mich, ich heiße, verwende keine, benutze keine, keine emojis, antworte auf, halte dich kurz, duze mich,
        merk dir, denk daran, vermeide, verzichte auf, schreib in, frag mich
        appelle-moi, je m'appelle, tutoie-moi, n'utilise pas, pas d'emojis, réponds en, sois bref, souviens-toi,
        n'oublie pas que, évite, demande-moi
        llámame, me llamo, no uses, sin emojis, responde en, recuerda que, ten en cuenta, evita, trátame, sé breve
        chiamami, mi chiamo, non usare, niente emoji, rispondi in, ricordati, tieni presente, dammi del,
        chiedimi prima
        me chame, meu nome é, não use, sem emojis, responda em, lembre-se, tenha em mente, evite, seja breve
        зови меня, меня зовут, не используй, без смайликов, отвечай на, запомни, учти, избегай, обращайся ко мне
        叫我, 不要使用, 别用, 用英文回, 记住, 注意, 避免, 回答要
        …と呼んで, …使わないで, …避けて, …覚えておいて, …以内に
    """,
    # What of the list above is said for once has one of these.
    "moments": """
        this, now, today, tomorrow, back, once, when, morgen, nicht, demain, cette, mañana, esta, domani, amanhã,
        этот
        завтра, 明天
    """,
}
