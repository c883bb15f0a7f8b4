"""From a model's configuration to what each of its layers keeps, by architecture."""

from kvcellar.errors import IncompatibleError
from kvcellar.layout.models.config import ModelConfig
from kvcellar.layout.models.families import attention, deepseek_v4, latent, recurrent
from kvcellar.layout.models.families.parts import Family, ModelLayers
from kvcellar.layout.models.options import ServingOptions

_ARCHITECTURES_BY_FAMILY: dict[Family, tuple[str, ...]] = {
    attention.plain: (
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "GraniteForCausalLM",
        "LlamaForCausalLM",
        "Ministral3ForCausalLM",
        "Mistral3ForConditionalGeneration",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
    ),
    attention.gpt_oss: ("GptOssForCausalLM",),
    attention.gemma2: ("Gemma2ForCausalLM",),
    attention.gemma3: ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    attention.cohere2: ("Cohere2ForCausalLM",),
    attention.llama4: ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
    latent.latent: (
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Glm4MoeLiteForCausalLM",
    ),
    recurrent.gated_delta_net: (
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    ),
    recurrent.nemotron_h: ("NemotronHForCausalLM",),
    deepseek_v4.deepseek_v4: ("DeepseekV4ForCausalLM",),
    deepseek_v4.deepseek_v41: ("DeepseekV41ForCausalLM",),
}
_FAMILY_BY_ARCHITECTURE = {
    name: family for family, names in _ARCHITECTURES_BY_FAMILY.items() for name in names
}

ARCHITECTURES: tuple[str, ...] = tuple(sorted(_FAMILY_BY_ARCHITECTURE))
"""Model classes whose layers are known."""


def model_layers(config: ModelConfig, options: ServingOptions) -> ModelLayers:
    """What each layer keeps on one tensor-parallel rank.

    Raises:
        IncompatibleError: the architecture is not known, or mixes layers in a way that
            is not.
        ConfigError: the configuration lacks something, or the options do not fit it.
    """
    names = config.architectures
    family = next(
        (_FAMILY_BY_ARCHITECTURE[n] for n in names if n in _FAMILY_BY_ARCHITECTURE),
        None,
    )
    if family is None:
        raise IncompatibleError(
            f"{config.name}: architectures {', '.join(names)} are not known to "
            "kvcellar without the engine; supported: " + ", ".join(ARCHITECTURES)
        )
    return family(config, options)
