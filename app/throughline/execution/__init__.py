"""How work is run that may be long, hang or fail: beside the event loop, in operators' code, behind a breaker."""
