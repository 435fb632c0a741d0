"""How a tool tells the model that a call cannot succeed."""


class ToolFailed(Exception):
    """Raised by a tool; its text goes to the model as an error result, so that the model can do better.

    Of any other exception the model learns the class only: its text may hold what it must not see.
    """
