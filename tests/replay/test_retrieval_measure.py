from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval_data import Question, chained, read_meetings
from benchmarks.retrieval_recall import recall_of

MEETINGS = SAMPLE / "qmsum-questions"


def test_the_sample_has_questions_whose_spans_lie_in_their_meetings() -> None:
    halves = read_meetings(MEETINGS)

    assert len(halves.tuned) == len(halves.reported) == 3
    for meeting in (*halves.tuned, *halves.reported):
        assert meeting.questions
        assert all(0 <= first <= last for question in meeting.questions for first, last in question.spans)
        assert all(last < len(meeting.lines) for question in meeting.questions for _, last in question.spans)


def test_recall_counts_spans_that_were_touched_and_lines_that_were_found() -> None:
    recall = recall_of([(Question("", ((0, 3), (10, 15))), [2, 7, 3, 40, 41, 11])])

    assert recall.spans == (0.5, 1.0, 1.0, 1.0)
    assert recall.lines == (0.2, 0.3, 0.3, 0.3)


def test_meetings_are_chained_to_any_length() -> None:
    meetings = read_meetings(MEETINGS).tuned
    whole = sum(len(meeting.lines) for meeting in meetings)

    lines = list(chained(meetings, whole + 3))

    assert len(lines) == whole + 3
    assert lines[whole:] == lines[:3]
