"""The words by which facts are known: file endings, programs, months, units, and what programs say of errors."""

EXTENSIONS = (
    "py|pyi|ipynb|js|mjs|cjs|ts|tsx|jsx|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|md|rst|txt|log|csv|tsv|parquet|sql"
    "|sqlite|db|html?|css|scss|xml|svg|png|jpe?g|gif|webp|pdf|docx?|xlsx?|pptx?|zip|tar|gz|tgz|bz2|xz|7z|rar|exe|dll|so"
    "|sh|bash|zsh|ps1|bat|cmd|go|rs|rb|php|java|kt|swift|c|cc|cpp|h|hpp|cs|vue|svelte|tf|proto|pem|key|crt|bak|tmp|mp3"
    "|mp4|wav|mov|diff|patch|service|gradle|properties|lua|pl|r|m|tex|bib|eml|ics"
)

PROGRAMS = (
    r"git|gh|docker|docker-compose|podman|kubectl|helm|terraform|ansible|make|cmake|ninja|npm|npx|pnpm|yarn|node|bun"
    r"|deno|python|python3|pip|pip3|pipx|uv|poetry|pytest|ruff|mypy|black|tox|cargo|rustc|go|mvn|gradle|java|javac"
    r"|dotnet|ruby|bundle|rails|php|composer|curl|wget|ssh|scp|rsync|ls|cd|cp|mv|rm|mkdir|chmod|chown|ln|cat|head"
    r"|tail|less|grep|rg|find|sed|awk|sort|uniq|xargs|tar|zip|unzip|ps|kill|killall|top|df|du|free|systemctl"
    r"|journalctl|service|apt|apt-get|brew|dnf|yum|apk|snap|psql|pg_dump|mysql|redis-cli|sqlite3|mongosh|aws|gcloud"
    r"|az|alembic|throughline|export|source|sudo|env|which|touch|echo|vim|nano|code|open|crontab|nginx|openssl|jq"
    r"|ffmpeg|convert|su|screen|tmux|nohup|time"
)
MONTHS = (
    r"jan(?:uary|uar|vier|eiro)?|feb(?:ruary|ruar|rero|braio)?|fév(?:rier)?|fevereiro|mar(?:ch|s|zo|ço)?"
    r"|märz|apr(?:il|ile)?"
    r"|avril|abril|may|mai|mayo|maggio|maio|june?|juni|juin|junio|giugno|junho|july?|juli|juillet|julio"
    r"|luglio|julho|aug(?:ust)?"
    r"|août|agosto|sep(?:t|tember|tembre|tiembre)?|settembre|setembro|oct(?:ober|obre|ubre)?|okt(?:ober)?"
    r"|ottobre|outubro"
    r"|nov(?:ember|embre|iembre|embro)?|dec(?:ember)?|dez(?:ember|embro)?|déc(?:embre)?|diciembre|dicembre"
    r"|enero|gennaio"
    r"|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
)
UNITS = (
    r"%|‰|°\s?[CFK]?|[kmµnμ]?s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?"
    r"|[kKMGTP]i?B(?:/s|ps)?|bytes?"
    r"|[kKMGT]?bits?(?:/s)?|[kKMGT]bps|[kcmµ]?m[²³23]?|miles?|mi|km/h|mph|m/s|ft|feet|inch(?:es)?|[kmµ]?g"
    r"|lbs?|oz|tons?|tonnes?"
    r"|[kMG]?Wh?|m?V|m?Ah?|Ω|[kMGT]?Hz|dB|rpm|[mc]?l|liters?|litres?|gallons?|fps|px|dpi|r?em|pt|tokens?"
    r"|messages?|rows?"
    r"|requests?(?:/s)?|req/s|[rq]ps|users?|items?|lines?|files?|characters?|words?|pages?|people|persons?"
    r"|cores?|threads?|workers?"
    r"|nodes?|replicas?|pods?|retries|attempts?|tests?|points?|times|x|[Ee]uros?|[Dd]ollars?|[Pp]ounds?|[Yy]en|cents?"
    r"|EUR|USD|GBP|CHF|JPY|CNY|BRL"
    r"|RUB|[$€£¥₽₹]|million|billion|thousand|k|Mio\.?|Mrd\.?|Sekunden?|Minuten?|Stunden?|Tagen?|Tage?"
    r"|Wochen?|Monaten?|Monate?|Jahren?"
    r"|Nachrichten|Zeilen|secondes?|heures?|jours?|semaines?|mois|ans|segundos?|minutos?|horas?|días?"
    r"|dias?|semanas?|meses|años?"
    r"|anos?|giorni|ore|minuti|secondi|settimane|mesi|anni|секунды?|минуты?|минут|часов|часа|дней|дня"
    r"|недель|месяцев|лет|года|рублей|rubles?|руб"
    r"|[万亿]?[元円人个個天年月日秒件条字行个]|小时|分钟|时间|時間|分"
)
REASONS = (
    "Bad Request|Unauthorized|Payment Required|Forbidden|Not Found|Method Not Allowed|Not Acceptable"
    "|Request Timeout|Conflict|Gone"
    "|Payload Too Large|Unsupported Media Type|Unprocessable Entity|Unprocessable Content|Too Many Requests"
    "|Internal Server Error|Not Implemented|Bad Gateway|Service Unavailable|Gateway Timeout"
)
FAILURES = (
    "command not found|No such file or directory|Permission denied|[Cc]onnection (?:refused|reset"
    "|timed out)|Segmentation fault"
    "|Killed|core dumped|Out of memory|[Nn]o space left on device|Address already in use|npm ERR!"
    "|Traceback|Deadlock detected"
)
CURRENCIES = "EUR|USD|GBP|CHF|JPY|CNY|RUB|BRL|INR|CAD|AUD|SEK|NOK|DKK|PLN"
