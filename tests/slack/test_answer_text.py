from throughline.domain.run import RunError
from throughline.slack.answer_text import sentence


def test_a_failed_turn_is_told_in_our_words_and_not_in_the_providers() -> None:
    said = sentence(RunError("model_invalid_request", "The server has no such model.", "try pulling it first"))

    assert "The server has no such model." in said
    assert "pulling" not in said
