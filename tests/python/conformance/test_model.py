"""The oracle finds what it is there to find."""

import pytest

from conformance.model import Model


def filled():
    """Item 1 was written and then changed, item 2 removed, and item 3 is not known to have been written."""
    model = Model(7)
    for number, text in [(1, "7/1/a"), (1, "7/1/b"), (2, "7/2/a"), (2, None)]:
        model.begin(number, text)
        model.acknowledge(number, text)
    model.begin(3, "7/3/a")
    return model


@pytest.mark.parametrize("texts", [["7/1/b"], ["7/3/a", "7/1/b"]])
def test_what_may_be_there_is_accepted(texts):
    filled().check(texts)


@pytest.mark.parametrize("texts, words", [
    ([], "acknowledged and gone"),
    (["7/1/b", "7/1/b"], "doubled"),
    (["7/1/b", "8/1/b"], "of another tenant"),
    (["7/1/a"], "should be one of"),
    (["7/1/b", "7/2/a"], "should be one of"),
    (["7/1/b", "7/4/a"], "should be one of"),
])
def test_what_may_not_be_there_is_found(texts, words):
    with pytest.raises(AssertionError, match=words):
        filled().check(texts)


def test_a_page_need_not_have_everything_and_must_be_full():
    model = filled()
    model.begin(5, "7/5/a")
    model.acknowledge(5, "7/5/a")
    model.check(["7/5/a"], look_max=1)
    with pytest.raises(AssertionError, match="1 of 2 items are shown"):
        model.check(["7/5/a"], look_max=2)
