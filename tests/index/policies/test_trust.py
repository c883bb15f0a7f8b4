"""What came true against what was claimed."""

import pytest

from kvcellar.index.policies.trust import FORGOTTEN_PROMPTS, Trust


def test_an_order_that_was_never_followed_is_believed():
    """There is nothing against it."""
    trust = Trust()
    trust.forget()
    assert 1.0 == trust.ratio()


@pytest.mark.parametrize("real", [0, 5, 10, 20])
def test_what_comes_true_is_what_is_believed(real):
    """After some time, by more than half; what is expected keeps its part."""
    trust = Trust()
    for _ in range(3000):
        trust.compare(100, 10, real)
    assert trust.ratio() == pytest.approx((5 * real + 4 * 10) / (9 * 10), rel=0.01)


def test_a_few_prompts_do_not_condemn_an_order():
    """Whatever they had asked for; they come in very different sizes."""
    trust = Trust()
    for _ in range(20):
        trust.compare(30, 0, 0)
    trust.compare(100, 90, 0)
    assert 0.9 < trust.ratio() < 1.0


def test_an_order_that_is_not_followed_is_forgiven():
    """In the end it may try again."""
    trust = Trust()
    for _ in range(1000):
        trust.compare(100, 10, 0)
    ratios = []
    for _ in range(8):
        ratios.append(trust.ratio())
        for _ in range(FORGOTTEN_PROMPTS):
            trust.forget()
    assert sorted(ratios) == ratios
    assert ratios[0] < 0.5
    assert ratios[-1] > 0.9


def test_an_order_that_was_never_followed_is_taken_at_what_is_expected():
    """Until its own claims have come true or not."""
    trust = Trust()
    assert trust.ratio(1.5) == 1.5
    for _ in range(3000):
        trust.compare(100, 10, 10)
    assert trust.ratio(1.5) == pytest.approx((5 + 4 * 1.5) / 9, rel=0.01)
