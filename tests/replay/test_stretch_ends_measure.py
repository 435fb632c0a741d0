from benchmarks.replay_data import SAMPLE
from benchmarks.segment_ends import Score, cohesive_ends, even_ends, joined_talks, read_meetings, segment_ends
from throughline.context.summaries.segment_ends import best_end

MEETINGS = SAMPLE / "qmsum"


def test_the_sample_has_borders_inside_its_meetings() -> None:
    meetings = read_meetings(MEETINGS)

    assert [len(meeting.borders) for meeting in meetings] == [4, 2]
    assert all(0 < border < len(meeting.messages) for meeting in meetings for border in meeting.borders)


def test_ends_are_right_and_borders_are_found_within_two_messages() -> None:
    score = Score()

    score.add([10, 20, 29], [12, 30, 50])

    assert (score.right, score.found) == (2, 2)
    assert score.cell() == "66.7%, 66.7% (3)"


def test_as_many_ends_are_chosen_as_there_are_borders() -> None:
    for meeting in read_meetings(MEETINGS):
        assert len(even_ends(meeting)) == len(cohesive_ends(meeting)) == len(meeting.borders)


def test_segments_follow_each_other_to_the_end() -> None:
    for meeting in read_meetings(MEETINGS):
        ends = segment_ends(meeting, 2000, best_end)

        assert ends == sorted(set(ends))
        assert ends[0] > 0
        assert ends[-1] < len(meeting.messages)


def test_joined_talks_have_a_border_between_excerpts() -> None:
    meetings = read_meetings(MEETINGS)

    talks = joined_talks(meetings)

    assert talks == joined_talks(meetings)
    assert all(len(talk.borders) == len(meetings) - 1 for talk in talks)
    assert all(0 < border < len(talk.messages) for talk in talks for border in talk.borders)
