"""Build one tiny model: ``python -m kvcellar.demo.tiny_build NAME FOLDER``.

The only file of the demo that loads a machine-learning library, and always in a process
of its own.
"""

import importlib
import sys
from pathlib import Path

from kvcellar.demo.recipes import RECIPES, TinyRecipe

_SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>")


def build(recipe: TinyRecipe, folder: Path) -> None:
    """Write a tokenizer, a configuration and seeded random bf16 weights."""
    # By name, so that type checks give the same result where it is not installed.
    transformers = importlib.import_module("transformers")
    transformers.set_seed(recipe.seed)
    vocab_size = _save_tokenizer(folder)
    config = getattr(transformers, recipe.config_class)(
        **recipe.config,
        vocab_size=vocab_size,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype="bfloat16")
    model.save_pretrained(folder)


def _save_tokenizer(folder: Path) -> int:
    """Write a tokenizer with one token per byte of UTF-8, and return its vocabulary.

    It takes any text, and its token counts are byte counts.
    """
    tokenizers = importlib.import_module("tokenizers")
    transformers = importlib.import_module("transformers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    tokens = [*_SPECIAL_TOKENS, *sorted(byte_level.alphabet())]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    pad, bos, eos = _SPECIAL_TOKENS
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, bos_token=bos, eos_token=eos
    ).save_pretrained(folder)
    return len(vocabulary)


if __name__ == "__main__":
    build(RECIPES[sys.argv[1]], Path(sys.argv[2]))
