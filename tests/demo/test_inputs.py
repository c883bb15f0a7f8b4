import pytest

from kvcellar.demo import script, text
from kvcellar.demo.metrics import TokenSources, parse_metrics
from kvcellar.demo.script import make_conversations
from kvcellar.demo.text import document
from kvcellar.errors import CellarError

EXPOSITION = """\
# HELP kvcellar_stored_bytes_total Bytes.
# TYPE kvcellar_stored_bytes_total counter
kvcellar_stored_bytes_total{engine="0",rank="0"} 100.0
kvcellar_stored_bytes_total{engine="0",rank="1"} 1.5e2
kvcellar_stored_bytes_created{engine="0"} 1.79e+09
vllm:prompt_tokens_by_source_total{model_name="a\\"},b",source="local_compute"} 7
vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 5
vllm:prompt_tokens_by_source_total{source="external_kv_transfer"} 3
plain_gauge 4
broken_line
nan_word abc
"""


def test_series_of_one_name_are_added():
    """A counter of several ranks is their sum; its creation time does not count."""
    samples = parse_metrics(EXPOSITION)
    assert samples.total("kvcellar_stored_bytes_total") == 250
    assert samples.total("kvcellar_stored_bytes") == 250
    assert samples.total("kvcellar_stored_bytes_total", rank="1") == 150
    assert samples.total("plain_gauge") == 4


def test_absent_metrics_are_none():
    """What is not there is not zero."""
    samples = parse_metrics(EXPOSITION)
    assert samples.total("kvcellar_loaded_bytes_total") is None
    assert samples.total("nan_word") is None
    assert parse_metrics("").token_sources() == TokenSources(0, 0, 0)


def test_token_sources_are_told_apart():
    """Computed, device and host tokens come from vLLM's own labels."""
    sources = parse_metrics(EXPOSITION).token_sources()
    assert sources == TokenSources(7, 5, 3)
    assert sources - TokenSources(1, 1, 1) + TokenSources(0, 0, 1) == TokenSources(
        6, 4, 3
    )


def test_documents_are_the_same_every_time():
    """A seed and a number name one text; other seeds and numbers other ones."""
    assert document(1, 0, 5000) == document(1, 0, 5000)
    texts = {document(number, seed, 5000) for number in range(5) for seed in range(2)}
    assert len(texts) > 5
    assert {len(one) for one in texts} == {5000}


def test_documents_differ_within_their_first_block():
    """No two conversations of a seed share their first 32 characters."""
    assert len({document(number, 0, 200)[:32] for number in range(50)}) == 50


def test_too_long_documents_are_refused():
    """Asking for more text than there is says so."""
    with pytest.raises(CellarError, match="has no"):
        document(0, 0, 10**9)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """A Python without its library's sources is refused with the folder."""
    monkeypatch.setattr(text.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(CellarError, match=str(tmp_path)):
        document(0, 0, 100)


def test_conversations_have_the_lengths_of_the_script():
    """First turns vary within their range, later turns are all of one length."""
    made = make_conversations(6, 3, lambda text: [ord(c) for c in text])
    assert [c.number for c in made] == list(range(7))
    first_lengths = {len(c.turns[0]) for c in made}
    assert len(first_lengths) > 1
    for conversation in made:
        assert 2304 <= len(conversation.turns[0]) <= 2816
        later = [len(turn) for turn in conversation.turns[1:]]
        assert later == [script.TURN_TOKENS] * (script.NUM_TURNS - 1)
        total = sum(map(len, conversation.turns)) + 2 * script.ANSWER_TOKENS
        assert total <= script.LONGEST_PROMPT_TOKENS


def test_longest_prompt_and_its_answer_fit_the_model():
    """The server's length limit holds the longest request."""
    longest = script.LONGEST_PROMPT_TOKENS + script.ANSWER_TOKENS
    assert longest <= script.MAX_MODEL_TOKENS < longest + 256
