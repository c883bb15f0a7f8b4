"""Conversations with their text, in both shapes."""

from kvcellar.replay.readers import open_trace

ASK = {"role": "user", "content": "what is the weather like today?"}
ANSWER = {"role": "assistant", "content": "there is some rain, and more to come"}
MORE = {"role": "user", "content": "and tomorrow?"}


def read(path):
    return list(open_trace(path).requests)


def test_each_answer_of_a_dialogue_is_a_request_with_all_before_it(trace_file):
    """Two answers are two requests; the first with its answer begins the second."""
    dialogue = {"kind": "session", "id": "d", "messages": [ASK, ANSWER, MORE, ANSWER]}
    first, second = read(trace_file(dialogue))
    logged = [
        {"messages": [ASK], "response": ANSWER, "session": "d"},
        {"messages": [ASK, ANSWER, MORE], "response": ANSWER, "session": "d"},
    ]
    assert [first, second] == read(trace_file(*logged))


def test_tools_of_a_meta_line_stand_before_every_prompt_behind_it(trace_file):
    """They are part of what the model reads."""
    tools = [{"type": "function", "function": {"name": "look"}}]
    meta = {"kind": "meta", "tools": tools}
    dialogue = {"kind": "session", "id": "", "messages": [ASK, ANSWER]}
    logged = {"messages": [ASK], "tools": tools, "response": ANSWER}
    assert read(trace_file(meta, dialogue)) == read(trace_file(logged))


def test_recorded_turns_keep_their_order_and_text(trace_file):
    """Input is the whole prompt as it is; the clock of the record is not read."""
    turns = [
        {"t": 9.0, "input": "a" * 40, "output": "b" * 8},
        {"t": 1.0, "input": "a" * 40 + "b" * 8 + "c"},
    ]
    first, second = read(trace_file({"id": "s", "requests": turns}))
    assert (40, 8, 49, 0) == (
        first.num_prompt_tokens,
        first.num_output_tokens,
        second.num_prompt_tokens,
        second.num_output_tokens,
    )
    assert first.blocks + first.output_blocks == second.blocks
    assert (0.0, 0.0, "s", "s") == (
        first.arrival_seconds,
        second.arrival_seconds,
        first.session,
        second.session,
    )
