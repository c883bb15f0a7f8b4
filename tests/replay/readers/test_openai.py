"""Logs of OpenAI-style requests."""

import json
import sys

import pytest

from kvcellar.errors import ConfigError
from kvcellar.replay.readers import TraceError, open_trace

HELLO = [{"role": "user", "content": "hello there, this is a prompt of some length"}]
BYE = {"role": "assistant", "content": "an answer that is longer than two blocks"}
END = "<|im_end|>\n"


def read(path, **settings):
    return list(open_trace(path, **settings).requests)


def test_the_prompt_is_rendered_by_the_documented_template(trace_file):
    """Its length in bytes, and the ids of its blocks, are those of the ChatML text."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    messages = [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"image_url": "b"}],
        },
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
    ]
    text = (
        f"<|im_start|>tools\n{json.dumps(tools)}{END}"
        f"<|im_start|>system\nbe brief{END}"
        f"<|im_start|>user\na{json.dumps({'image_url': 'b'})}{END}"
        f"<|im_start|>assistant\n{json.dumps([{'name': 'f'}])}{END}"
        "<|im_start|>assistant\n"
    )
    chat, plain = read(
        trace_file({"messages": messages, "tools": tools}, {"prompt": text})
    )
    assert len(text) == chat.num_prompt_tokens == plain.num_prompt_tokens
    assert len(text) // 16 == len(chat.blocks)
    assert chat.blocks == plain.blocks


def test_the_next_turn_begins_with_the_prompt_and_answer_before_it(trace_file):
    """Blocks inside the answer are told, and are a prefix of the next prompt's."""
    turn = {"messages": HELLO, "response": {"choices": [{"message": BYE}]}}
    next_turn = {"messages": [*HELLO, BYE, {"role": "user", "content": "go on"}]}
    first, second = read(trace_file(turn, next_turn))
    known = first.blocks + first.output_blocks
    assert len(first.output_blocks) >= 2
    assert known == second.blocks[: len(known)]
    assert len(BYE["content"] + END) == first.num_output_tokens


def test_ids_part_where_the_texts_part(trace_file):
    """Equal blocks behind unequal ones have unequal ids."""
    first, second = read(
        trace_file({"prompt": "a" * 32 + "b" * 16}, {"prompt": "a" * 16 + "b" * 32})
    )
    assert first.blocks[0] == second.blocks[0]
    assert not set(first.blocks[1:]) & set(second.blocks[1:])


@pytest.mark.parametrize(
    ("log", "num_output_tokens", "num_output_blocks"),
    [
        ({"response": "four"}, len("four" + END), 1),
        ({"response": BYE}, len(BYE["content"] + END), 3),
        ({"choices": [{"message": BYE}]}, len(BYE["content"] + END), 3),
        ({"choices": [{"text": "four"}]}, len("four" + END), 1),
        ({"response": {"body": {"choices": [{"message": BYE}]}}}, 51, 3),
        ({"response": {"usage": {"completion_tokens": 77}}}, 77, 0),
        ({"response": {"choices": [], "usage": {"completion_tokens": 7}}}, 7, 0),
        ({"usage": {"completion_tokens": 78}}, 78, 0),
        ({"response": None}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_the_answer_is_found_where_logs_keep_it(
    trace_file, log, num_output_tokens, num_output_blocks
):
    """Text counts first, then usage; without both the answer has no tokens."""
    (request,) = read(trace_file({"messages": HELLO} | log))
    blocks = (request.num_prompt_tokens + request.num_output_tokens) // 16
    assert num_output_tokens == request.num_output_tokens
    if num_output_blocks:
        assert blocks - request.num_prompt_tokens // 16 == len(request.output_blocks)
    assert bool(num_output_blocks) == bool(request.output_blocks)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda body: body,
        lambda body: {"custom_id": "1", "method": "POST", "body": body},
        lambda body: {"request": body, "response": None},
    ],
)
def test_the_body_is_found_in_its_wrapping(trace_file, wrap):
    """Bare bodies, batch files and logged pairs give the same request."""
    body = {"messages": HELLO, "timestamp": 5, "session_id": "s"}
    assert read(trace_file(body)) == read(trace_file(wrap(body)))
    assert "s" == read(trace_file(wrap(body)))[0].session


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"timestamp": 1.7e9}, {"timestamp": 1.7e9 + 2.5}),
        ({"created": 1700000000000}, {"created": 1700000002500}),
        ({"time": "2026-01-01T00:00:00Z"}, {"time": "2026-01-01T01:00:02.5+01:00"}),
        ({"ts": "2026-01-01T00:00:00"}, {"ts": "2026-01-01T00:00:02.5Z"}),
    ],
)
def test_times_are_read_in_all_their_spellings(trace_file, first, second):
    """Seconds, milliseconds and ISO 8601, from the first request on."""
    found = read(trace_file({"prompt": "a"} | first, {"prompt": "b"} | second))
    assert [0.0, 2.5] == [request.arrival_seconds for request in found]


def test_a_line_without_a_time_arrives_with_the_one_before(trace_file):
    """And a log without any time arrives at once, in its order."""
    lines = [{"prompt": "a", "t": 3}, {"prompt": "bb"}, {"prompt": "c", "t": 5}]
    found = read(trace_file(*lines))
    assert [0.0, 0.0, 2.0] == [request.arrival_seconds for request in found]
    found = read(trace_file({"prompt": "aa"}, {"prompt": "b"}))
    assert [(0.0, 2), (0.0, 1)] == [
        (request.arrival_seconds, request.num_prompt_tokens) for request in found
    ]


def test_prompts_may_be_many_or_token_numbers(trace_file):
    """A list of texts is as many requests; numbers count as tokens themselves."""
    many = read(trace_file({"prompt": ["a" * 16, "b" * 32]}))
    assert [16, 32] == [request.num_prompt_tokens for request in many]
    numbers = list(range(1000, 1040))
    log = {"prompt": numbers, "response": "text", "usage": {"completion_tokens": 9}}
    (request,) = read(trace_file(log))
    assert (40, 2, 9) == (
        request.num_prompt_tokens,
        len(request.blocks),
        request.num_output_tokens,
    )


def test_the_block_size_is_the_users(trace_file):
    """Eight bytes a block make twice as many blocks as sixteen."""
    path = trace_file({"prompt": "x" * 64})
    assert 8 == len(read(path, block_tokens=8)[0].blocks)
    assert 16 == open_trace(path).block_tokens


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"prompt": {}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, r"messages\[0\]"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\].role"),
        (
            {"body": {"messages": [{"role": "a", "content": 1}]}},
            r"body.messages\[0\].con",
        ),
        ({"prompt": "a", "timestamp": "noon"}, "timestamp"),
        ({"prompt": "a", "timestamp": []}, "timestamp"),
        ({"prompt": "a", "session_id": 5}, "session_id"),
        ({"prompt": "a", "usage": 5}, "usage"),
    ],
)
def test_bad_lines_name_their_field(trace_file, bad, field):
    """Each is an error with its place in the record, and can be left out."""
    path = trace_file({"prompt": "good"}, bad)
    with pytest.raises(TraceError, match=f"line 2: {field}"):
        read(path)
    assert 1 == open_trace(path, skip_bad=True).num_skipped


def test_a_tokenizer_from_local_files_counts_its_tokens(trace_file, tmp_path):
    """Words become tokens: prompt, answer and blocks are counted in them."""
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    words = {"one": 0, "two": 1, "other": 2}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(words, unk_token="other")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    path = trace_file({"prompt": "one two " * 8, "response": "one " * 5})
    (request,) = read(path, tokenizer=str(folder), block_tokens=4)
    assert (16, 5) == (request.num_prompt_tokens, request.num_output_tokens)
    assert (4, 1) == (len(request.blocks), len(request.output_blocks))


def test_a_tokenizer_that_is_not_there_says_what_to_do(
    trace_file, tmp_path, monkeypatch
):
    """No package, or no files: either is told apart and told how to mend."""
    path = trace_file({"prompt": "a"})
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="needs the package transformers: install it"):
        read(path, tokenizer="some/name")
    monkeypatch.undo()
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match="cannot be loaded from local files"):
        read(path, tokenizer=str(tmp_path / "none"))
