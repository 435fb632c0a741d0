"""A module that connects in a task group when it is imported, and fails."""

NOT_FOUND = ConnectionError("404 at http://127.0.0.1/mcp")

raise ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("unhandled errors", [NOT_FOUND])])
