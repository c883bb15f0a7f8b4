"""From a request to figures. Pure: nothing is started, allocated or measured."""

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.groups import CacheLayout, with_chosen_chunk
from kvcellar.layout.models import ModelLayout, model_layout
from kvcellar.plan.device import DevicePlan, blocks_per_prompt, plan_device
from kvcellar.plan.figures import Figures
from kvcellar.plan.groups import groups_of
from kvcellar.plan.host import HostPlan, checked_settings, plan_host
from kvcellar.plan.modes import advise_mode
from kvcellar.plan.request import PlanRequest
from kvcellar.plan.sharing import num_sharing_ranks
from kvcellar.plan.timing import Timing, plan_timing
from kvcellar.plan.units import Units, units_of
from kvcellar.plan.words import size
from kvcellar.replay.presets import DEFAULT_GPU, active_parameters, gpu_named
from kvcellar.replay.presets_choice import CostChoice, choose_costs


def make_figures(request: PlanRequest) -> Figures:
    """Work everything out.

    Raises:
        ConfigError: a setting cannot work; the message says which, and what to do.
        IncompatibleError: the model's architecture is not known.
    """
    settings = checked_settings(request.extra_config)
    gpu_named(request.costs.gpu or DEFAULT_GPU)  # refused even where it is not used
    model = _model(request)
    longest = _longest_context(request, model)
    prompt_tokens = request.traffic.prompt_tokens_within(longest)
    layouts = served_layouts(model, settings)
    num_sharing = num_sharing_ranks(model, settings, request.shape.ranks_per_node)
    host = plan_host(
        layouts, settings, request.shape, prompt_tokens, num_sharing, longest
    )
    _check_nodes(request, host)
    units = units_of(layouts[0])
    device = _device(request, model, longest, prompt_tokens)
    num_at_once = _num_at_once(request, device)
    device_bytes = _device_bytes_per_prompt(model, prompt_tokens)
    return Figures(
        request=request,
        model=model,
        layouts=layouts,
        max_model_tokens=longest,
        prompt_tokens=prompt_tokens,
        units=units,
        groups=groups_of(model, layouts[0], host.stages[0]),
        host=host,
        device=device,
        num_at_once=num_at_once,
        timing=_timing(request, model.name, layouts, units, prompt_tokens),
        advice=advise_mode(
            host, device, device_bytes, settings.eviction_policy, num_at_once
        ),
    )


def served_layouts(model: ModelLayout, settings: Settings) -> tuple[CacheLayout, ...]:
    """What the connector keeps on one rank of each pipeline stage.

    Raises:
        ConfigError: the chunk that was asked for does not fit the model.
    """
    kept = model
    if settings.dead_state:
        try:
            kept = model.without_dead_state
        except IncompatibleError:  # then serving keeps the states, too
            kept = model
    chosen = (settings.chunk_tokens, settings.blocks_per_chunk)
    return tuple(with_chosen_chunk(stage.layout, *chosen) for stage in kept.stages)


def _model(request: PlanRequest) -> ModelLayout:
    """The model's layout; a stage that keeps no cache is the user's mistake.

    Raises:
        ConfigError, IncompatibleError: as ``model_layout``.
    """

    def layout_in(num_stages: int) -> ModelLayout:
        return model_layout(
            request.model,
            cache_dtype=request.cache_dtype,
            block_tokens=request.block_tokens,
            tensor_parallel=request.shape.tensor_parallel,
            pipeline_parallel=num_stages,
            state_dtype=request.state_dtype,
        )

    num_stages = request.shape.pipeline_parallel
    try:
        return layout_in(num_stages)
    except IncompatibleError as cause:
        if num_stages == 1:
            raise
        layout_in(1)  # raises the same if it is not for the stages
        raise ConfigError(
            f"pipeline_parallel={num_stages} leaves a stage without a cache ({cause})"
        ) from cause


def _longest_context(request: PlanRequest, model: ModelLayout) -> int:
    """Tokens of the longest request.

    Raises:
        ConfigError: more is asked for than the model allows.
    """
    asked, own = request.limits.max_model_tokens, model.max_model_tokens
    if asked is not None and asked > own:
        raise ConfigError(
            f"max_model_len={asked} is longer than the {own} tokens of {model.name}, "
            "so the engine refuses it; give at most that"
        )
    return asked or own


def _check_nodes(request: PlanRequest, host: HostPlan) -> None:
    """Refuse more host memory than a machine has.

    Raises:
        ConfigError: it does not fit.
    """
    shape = request.shape
    num_ranks = shape.ranks_per_node
    servers, rest = divmod(num_ranks, shape.ranks_per_server)
    asked = host.asked_bytes_per_rank * num_ranks
    if not rest:
        asked = min(asked, host.asked_bytes_per_server * servers)
    if request.node_bytes is None or asked <= request.node_bytes:
        return
    raise ConfigError(
        f"host_memory of up to {size(host.asked_bytes_per_rank)} x {num_ranks} rank(s) "
        f"= {size(asked)} on each node is more than node_memory={request.node_bytes} "
        f"({size(request.node_bytes)}); give at most "
        f"{size(request.node_bytes // num_ranks)} per rank"
    )


def _device(
    request: PlanRequest, model: ModelLayout, longest: int, prompt_tokens: int
) -> DevicePlan | None:
    if request.device_bytes is None:
        return None
    step_tokens = request.limits.step_tokens_on(request.costs.gpu)
    in_flight = request.limits.in_flight_tokens(
        step_tokens, request.shape.pipeline_parallel
    )
    return plan_device(model, request.device_bytes, longest, in_flight, prompt_tokens)


def _timing(
    request: PlanRequest,
    model_name: str,
    layouts: tuple[CacheLayout, ...],
    units: Units,
    prompt_tokens: int,
) -> Timing | None:
    """Times, unless nothing is known about speed and nobody has asked for it.

    Raises:
        ConfigError: a speed that was given is wrong, or one is missing.
    """
    choice = request.costs
    is_unknown = active_parameters(model_name) is None
    if choice == CostChoice(gpu=choice.gpu) and is_unknown:
        return None
    chosen = choose_costs(choice, model_name, request.shape.tensor_parallel)
    if chosen.is_timeless:
        return None
    rules = tuple(HybridRules(layout) for layout in layouts)
    step_tokens = request.limits.step_tokens_on(choice.gpu)
    return plan_timing(rules, units, chosen, prompt_tokens, step_tokens)


def _num_at_once(request: PlanRequest, device: DevicePlan | None) -> int | None:
    """Requests that run at once, at most; the others wait for the device.

    Those that decode have left the blocks behind their windows, so the device has room
    for as many as it keeps.
    """
    asked = request.traffic.num_concurrent
    if asked is None or device is None:
        return asked
    room = max(device.num_running, device.num_prompts)
    return min(asked, room * request.shape.data_parallel)


def _device_bytes_per_prompt(model: ModelLayout, prompt_tokens: int) -> int:
    """Of each GPU, that keep one typical prompt."""
    row_bytes = max(stage.row_bytes for stage in model.stages)
    return blocks_per_prompt(model.layout, prompt_tokens) * row_bytes
