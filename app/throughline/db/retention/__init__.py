"""The statements that delete expired rows and erase old archived sessions. Jobs of `turn/worker/` run them."""
